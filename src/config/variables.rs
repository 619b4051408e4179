//! Environment variables, each of which is the default for an option.

use std::env;
use std::ffi::OsString;
use std::str::FromStr;

use crate::error::Error;

/// Returns the value of an option, or of the variable if the option was not given.
pub(super) fn setting<T: FromStr<Err = String>>(
    option: Option<T>,
    name: &str,
) -> Result<Option<T>, Error> {
    match (option, variable(name)?) {
        (Some(value), _) => Ok(Some(value)),
        (None, Some(text)) => parse(name, &text).map(Some),
        (None, None) => Ok(None),
    }
}

/// Does the same for a number.
pub(super) fn number(option: Option<u32>, name: &str) -> Result<Option<u32>, Error> {
    match (option, variable(name)?) {
        (None, Some(text)) => {
            let number = text.parse();
            number.map(Some).map_err(|_| {
                Error::Usage(format!("{name}: '{text}' is not a number; use 0 or greater"))
            })
        }
        (option, _) => Ok(option),
    }
}

/// Parses the text of a variable; an error names the variable.
pub(super) fn parse<T: FromStr<Err = String>>(name: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|what| Error::Usage(format!("{name}: {what}")))
}

/// Returns a variable that is set. An empty one counts as unset, because CI systems often pass
/// empty variables.
pub(super) fn given(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Does the same for a variable that must be UTF-8.
pub(super) fn variable(name: &str) -> Result<Option<String>, Error> {
    given(name).map(|value| unicode(name, value)).transpose()
}

/// Converts the value of a variable; an error names the variable.
pub(super) fn unicode(name: &str, value: OsString) -> Result<String, Error> {
    value
        .into_string()
        .map_err(|_| Error::Usage(format!("{name}: not UTF-8; correct its encoding")))
}
