//! Locks for people and for programs: a view of one or of many as text or as JSON.

pub(crate) mod json;
pub(crate) mod page;
pub(crate) mod problem;
pub(crate) mod table;
