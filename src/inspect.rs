//! From what a store says of locks to what people and programs read. Pure.

pub(crate) mod json;
pub(crate) mod table;
