//! Where a configuration stands: what it is called, its text, its folder, the environment that it may name, and whether
//! everybody on the machine can read what should be secret.

use std::{fmt, fs, os::unix::fs::PermissionsExt, path::Path};

use toml::Spanned;

use super::{ConfigError, error::line_of};

pub(super) struct ConfigSource<'a> {
    pub name: &'a str,
    pub text: &'a str,
    /// Files that it names are beside it.
    pub folder: &'a Path,
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Secrets may be in files that everybody can read.
    pub allow_readable_secrets: bool,
    /// Secrets may cross the network unencrypted.
    pub allow_plain_http: bool,
}

/// A secret as it is written: in the file itself, or by the name of its place.
#[derive(Debug)]
pub(super) enum Secret<'s> {
    Written,
    Env(&'s str),
    File(&'s Path),
}

/// Other files are read whole.
const LONGEST: u64 = 4 * 1024 * 1024;

impl fmt::Display for Secret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Secret::Written => f.write_str("what is written here"),
            Secret::Env(name) => write!(f, "`{name}` in the environment"),
            Secret::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl ConfigSource<'_> {
    pub fn line<T>(&self, part: &Spanned<T>) -> Option<usize> {
        Some(line_of(self.text, &part.span()))
    }

    pub fn error(&self, line: Option<usize>, message: impl Into<String>) -> ConfigError {
        ConfigError { place: self.name.to_owned(), line, message: message.into() }
    }

    pub fn env(&self, name: &str) -> Option<String> {
        (self.env)(name)
    }

    /// A secret, from where it is. `value` is the one that is written in the file itself.
    pub fn secret(&self, from: &Secret<'_>, value: &str, line: Option<usize>) -> Result<String, ConfigError> {
        match from {
            Secret::Written => {
                self.private(Path::new(self.name), line)?;
                Ok(value.to_owned())
            }
            Secret::Env(name) => self.env(name).ok_or_else(|| {
                self.error(line, format!("the environment has no `{name}`: set it to the secret"))
            }),
            Secret::File(path) => {
                let path = self.folder.join(path);
                self.private(&path, line)?;
                Ok(self.read(&path, line)?.trim_end_matches(['\r', '\n']).to_owned())
            }
        }
    }

    /// Refuses a file with a secret that everybody on the machine can read.
    pub fn private(&self, path: &Path, line: Option<usize>) -> Result<(), ConfigError> {
        if self.allow_readable_secrets || !is_readable_by_all(path) {
            return Ok(());
        }
        let path = path.display();
        let place = if self.name.is_empty() { "secrets" } else { self.name };
        Err(ConfigError {
            place: place.to_owned(),
            line,
            message: format!(
                "{path} holds a secret, and every user of this machine can read it: `chmod 600 {path}`, or set \
                 allow_readable_secrets"
            ),
        })
    }

    /// A file that the line names.
    pub fn read(&self, path: &Path, line: Option<usize>) -> Result<String, ConfigError> {
        let path = self.folder.join(path);
        let cannot = |why: String| {
            self.error(line, format!("{} cannot be read: {why}. Check the path", path.display()))
        };
        match fs::metadata(&path) {
            Ok(found) if found.len() > LONGEST => Err(cannot(format!("it is longer than {LONGEST} bytes"))),
            Ok(_) => fs::read_to_string(&path).map_err(|error| cannot(error.to_string())),
            Err(error) => Err(cannot(error.to_string())),
        }
    }
}

/// Whether every user of this machine may read a file. One that is not there holds nothing.
pub(crate) fn is_readable_by_all(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o004 != 0)
}
