//! Environment variables, each of which is the default for an option.

use std::env;
use std::ffi::OsString;

use crate::error::Error;
use crate::rules::UserMessage;

/// Returns the value of an option, or of the variable if the option was not given.
pub(super) fn setting<T>(
    option: Option<T>,
    name: &str,
    parser: impl FnOnce(&str) -> Result<T, UserMessage>,
) -> Result<Option<T>, Error> {
    if option.is_some() {
        return Ok(option);
    }
    let named = |fault: UserMessage| fault.reworded(|what| format!("{name}: {what}"));
    let value = variable(name)?.map(|text| parser(&text));
    value.transpose().map_err(|fault| Error::Usage(named(fault)))
}

/// Returns a variable that is set. An empty one counts as unset, because CI systems often pass
/// empty variables.
pub(super) fn given(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Does the same for a variable that must be UTF-8.
pub(super) fn variable(name: &str) -> Result<Option<String>, Error> {
    given(name).map(OsString::into_string).transpose().map_err(|_| {
        let fault = UserMessage::new(format!("{name}: not UTF-8"));
        Error::Usage(fault.with_remedy("correct its encoding"))
    })
}
