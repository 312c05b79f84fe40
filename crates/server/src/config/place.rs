//! Where a configuration stands: what it is called, its text, its folder, and the environment that it may name.

use std::{fs, path::Path};

use toml::Spanned;

use super::{ConfigError, error::line_of};

pub(super) struct Place<'a> {
    pub name: &'a str,
    pub text: &'a str,
    /// Files that it names are beside it.
    pub folder: &'a Path,
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// Other files are read whole.
const LONGEST: u64 = 4 * 1024 * 1024;

impl Place<'_> {
    pub fn line<T>(&self, part: &Spanned<T>) -> Option<usize> {
        Some(line_of(self.text, &part.span()))
    }

    pub fn error(&self, line: Option<usize>, message: impl Into<String>) -> ConfigError {
        ConfigError { place: self.name.to_owned(), line, message: message.into() }
    }

    pub fn env(&self, name: &str) -> Option<String> {
        (self.env)(name)
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
