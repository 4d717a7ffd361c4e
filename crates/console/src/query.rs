//! The parameters of a request: those of its address, and those of a form.

use crate::error::PageRefusal;

/// Parameters. Of a repeated one the first counts, but for [`Params::all`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    pub(crate) fn parse(text: &[u8]) -> Params {
        let pairs = form_urlencoded::parse(text).map(|(name, value)| (name.into_owned(), value.into_owned()));
        Params(pairs.take(PARAMS_MAX).collect())
    }

    /// A parameter; `None` if it is absent or empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim());
        found.filter(|value| !value.is_empty())
    }

    /// All values of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.trim())
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, PageRefusal> {
        let refused = |text| PageRefusal::bad(format!("{name} is {text:?}, which is no number"));
        self.text(name).map(|text| text.parse().map_err(|_| refused(text))).transpose()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.text(name).is_some()
    }
}

/// Parameters of one request; more are not read.
const PARAMS_MAX: usize = 64;
