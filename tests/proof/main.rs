//! What plays with the rules of `src/rules` and `lua/` themselves, and not only with the program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![allow(missing_docs)]

#[path = "../support/mod.rs"]
mod support;

mod campaign;
mod check;
#[allow(unreachable_pub, reason = "it is also the library of fuzz/")]
mod fuzz;
mod histories;
mod scripts;
mod supervisor;
mod values;
