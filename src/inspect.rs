//! Shows locks: one as a page, several as a table, and either as JSON.

pub(crate) mod json;
pub(crate) mod page;
pub(crate) mod problem;
pub(crate) mod table;
