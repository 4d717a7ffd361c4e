//! What is refused.

/// Why a load cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A parameter, or a part of the size, lies outside the range in which the model means anything: give another.
    #[error("{name} is {given}: it has to be {range}")]
    OutOfRange {
        /// Its name, as in `messages.toml`.
        name: String,
        /// What was given.
        given: String,
        /// What is taken.
        range: String,
    },
    /// The text of the parameters is no such TOML: the message has line and column.
    #[error("the parameters are not readable: {0}")]
    Unreadable(#[from] toml::de::Error),
    /// The load would hold more blocks in memory than it may: give a smaller scale.
    #[error("{blocks} blocks of store files at this scale are more than {blocks_max}: give a smaller --scale")]
    TooLarge {
        /// How many there would be.
        blocks: u64,
        /// How many there may be.
        blocks_max: u64,
    },
}
