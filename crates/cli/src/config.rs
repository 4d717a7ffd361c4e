//! Defaults for options that neither the command line nor the environment sets: a file of the user's, or of the
//! machine's.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use frieze_client::{PrivateFile, PrivateFileError};
use serde::Deserialize;

use crate::failure::UsageError;

/// Names the file.
const VARIABLE: &str = "FRIEZE_CLIENT";
/// The file, below a directory of settings.
const FILE: &str = "frieze/client.toml";
/// Settings of the machine.
const MACHINE: &str = "/etc";

/// Its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// As `--server`.
    pub(crate) server: Option<String>,
    /// As `--key`.
    pub(crate) key: Option<PathBuf>,
}

/// Reads the first that there is of the file that `FRIEZE_CLIENT` names (none, if that is empty), the user's and the
/// machine's.
///
/// # Errors
/// [`UsageError`] with the file and the error.
pub(crate) fn load() -> Result<Config, UsageError> {
    load_first(&places(&|name| std::env::var_os(name).map(PathBuf::from)))
}

/// Where it may be, and whether it has to be there.
fn places(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<(PathBuf, bool)> {
    if let Some(named) = variable(VARIABLE) {
        return if named.as_os_str().is_empty() { Vec::new() } else { vec![(named, true)] };
    }
    // A relative one is to be ignored (XDG Base Directory Specification).
    let own = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let own = own.or_else(|| Some(variable("HOME").filter(|path| path.is_absolute())?.join(".config")));
    own.into_iter().chain([PathBuf::from(MACHINE)]).map(|directory| (directory.join(FILE), false)).collect()
}

fn load_first(places: &[(PathBuf, bool)]) -> Result<Config, UsageError> {
    for (path, is_named) in places {
        let error = match PrivateFile::read(path) {
            Ok(file) => return read(path, &file.text),
            Err(PrivateFileError::Io(error)) => error,
            Err(refused) => return Err(UsageError(refused.to_string())),
        };
        match error {
            error if !is_named && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            // `$HOME` of the user before this program changed its user.
            error if !is_named && !path.starts_with(MACHINE) && error.kind() == ErrorKind::PermissionDenied => {}
            error => return Err(UsageError(format!("cannot read {}: {error}", path.display()))),
        }
    }
    Ok(Config::default())
}

fn read(path: &Path, text: &str) -> Result<Config, UsageError> {
    let mut config: Config = toml::from_str(text)
        .map_err(|error| UsageError(format!("{} is wrong: {}", path.display(), error.message())))?;
    // A key lies beside the file unless its path is given.
    config.key = config.key.map(|key| path.parent().unwrap_or(Path::new("")).join(key));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Vec<String> {
        let variable = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| PathBuf::from(value));
        places(&variable).iter().map(|(path, _)| path.display().to_string()).collect()
    }

    #[test]
    fn the_users_file_goes_before_the_machines() {
        let machine = "/etc/frieze/client.toml";
        assert_eq!(found(&[]), [machine]);
        assert_eq!(found(&[("HOME", "/h")]), ["/h/.config/frieze/client.toml", machine]);
        assert_eq!(found(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]), ["/x/frieze/client.toml", machine]);
        assert_eq!(found(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "x")]), ["/h/.config/frieze/client.toml", machine]);
        assert_eq!(found(&[("HOME", "/h"), (VARIABLE, "/f")]), ["/f"]);
        assert_eq!(found(&[("HOME", "/h"), (VARIABLE, "")]), Vec::<String>::new());
    }

    #[test]
    fn an_error_in_the_file_names_its_key() {
        let config = read(Path::new("/c/client.toml"), "server = \"a:1,b:2\"\nkey = \"k\"\n").unwrap();
        assert_eq!(config, Config { server: Some("a:1,b:2".to_owned()), key: Some(PathBuf::from("/c/k")) });
        let words = read(Path::new("/c/client.toml"), "servers = \"a:1\"").unwrap_err().0;
        assert!(words.starts_with("/c/client.toml is wrong: unknown field `servers`"), "{words}");
        let directory = tempfile::tempdir().unwrap();
        let absent = directory.path().join("absent");
        assert_eq!(load_first(&[(absent.clone(), false)]).unwrap(), Config::default());
        assert!(load_first(&[(absent, true)]).unwrap_err().0.contains("cannot read"));
    }
}
