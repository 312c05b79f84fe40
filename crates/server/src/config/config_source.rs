//! The source of a configuration: its name, text and folder, the environment it may refer to, and whether its
//! secrets may be readable by every user.

use std::{fmt, fs, os::unix::fs::PermissionsExt, path::Path};

use toml::Spanned;

use super::{ConfigError, error::line_of};

pub(super) struct ConfigSource<'a> {
    pub name: &'a str,
    pub text: &'a str,
    /// Relative paths start here.
    pub folder: &'a Path,
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Allows secrets in files that every user can read.
    pub allow_readable_secrets: bool,
    /// Allows secrets to cross the network unencrypted.
    pub allow_plain_http: bool,
}

/// How a secret is given: in the file itself, or by reference.
#[derive(Debug)]
pub(super) enum Secret<'s> {
    Written,
    Env(&'s str),
    File(&'s Path),
}

/// The largest size of a referenced file.
const LONGEST: u64 = 4 * 1024 * 1024;

impl fmt::Display for Secret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Secret::Written => f.write_str("the value written here"),
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

    /// Returns a secret. `value` is the one written in the file itself.
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

    /// Refuses a file with a secret that every user of the machine can read.
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
                "{path} contains a secret, and every user of this machine can read it: `chmod 600 {path}`, or set \
                 allow_readable_secrets"
            ),
        })
    }

    /// Reads a file that this line refers to.
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

/// Whether every user of this machine can read a file. A missing file is not readable.
pub(crate) fn is_readable_by_all(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o004 != 0)
}
