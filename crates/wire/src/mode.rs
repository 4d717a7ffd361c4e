//! Changes of permission bits, as chmod(1) has them: each file gets what its own bits become.

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

/// What happens to the bits that a [`ModeChange`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ModeAction {
    /// They are set (`+`).
    Add = 0,
    /// They are cleared (`-`).
    Take = 1,
    /// They are set, and the others of the same classes cleared (`=`).
    Set = 2,
}

/// One change, such as `go-w`. Several are made one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct ModeChange {
    /// What happens.
    #[prost(enumeration = "ModeAction", tag = "1")]
    pub action: i32,
    /// All bits of the classes that it is about.
    #[prost(uint32, tag = "2")]
    pub who: u32,
    /// Bits that are not set or cleared whatever the others say: a umask, if no class is named.
    #[prost(uint32, tag = "3")]
    pub without: u32,
    /// The bits, for all classes.
    #[prost(uint32, tag = "4")]
    pub bits: u32,
    /// `X`: the bits to execute too, of a directory or a file that any class may execute.
    #[prost(bool, tag = "5")]
    pub if_any_executes: bool,
    /// In place of bits: those that another class has, which stand so many bits from the last one.
    #[prost(uint32, optional, tag = "6")]
    pub copy_of: Option<u32>,
    /// True: a directory loses its set-id bits, too, if they are not named.
    #[prost(bool, tag = "7")]
    pub exact: bool,
}

impl ModeChange {
    /// The bits of a file that has `mode` now.
    pub fn of(&self, mode: u32, is_directory: bool) -> u32 {
        let what = match self.copy_of {
            Some(shift) => {
                let class = mode >> (shift & 7) & 0o7;
                class | class << 3 | class << 6
            }
            None => {
                let executes = self.if_any_executes && (is_directory || mode & 0o111 != 0);
                self.bits | if executes { 0o111 } else { 0 }
            }
        };
        let bits = what & self.who & !self.without;
        let changed = match self.action() {
            ModeAction::Add => mode | bits,
            ModeAction::Take => mode & !bits,
            ModeAction::Set => {
                // A directory keeps its set-id bits unless they are named.
                let kept = if is_directory && !self.exact { (SET_USER | SET_GROUP) & !what } else { 0 };
                mode & (!self.who | kept) | bits
            }
        };
        changed & 0o7777
    }
}
