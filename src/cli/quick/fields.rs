//! Turns words of the command line into the fields of the declaration.

use std::ffi::{OsStr, OsString};
use std::mem::take;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::ValueEnum;

use super::super::options::LeaseArgs;
use super::super::{Acquire, Common, Exec, HoldArgs, Inspect, Release, Renew, Terms};
use super::Given;
use crate::duration::{BoundedDuration, Timeout, Ttl};
use crate::inspect::selection::Order;
use crate::lock::pattern::Subject;
use crate::lock::{Id, Label, Name, Owner, Prefix, ProcessId, Token};
use crate::policy::{OnLost, OnUnreachable};

/// The type of a field. As in clap, it determines how many values the field takes.
pub(super) trait Field: Sized {
    /// Takes the values of the field. `None` leaves the command line to clap.
    fn read(given: &mut Given<'_>, field: &str) -> Option<Self>;
}

impl Field for bool {
    fn read(given: &mut Given<'_>, field: &str) -> Option<Self> {
        Some(!take(given.values(field)?).is_empty())
    }
}

impl<T: Value> Field for Vec<T> {
    fn read(given: &mut Given<'_>, field: &str) -> Option<Self> {
        take(given.values(field)?).into_iter().map(T::read).collect()
    }
}

impl<T: Value> Field for Option<T> {
    fn read(given: &mut Given<'_>, field: &str) -> Option<Self> {
        match given.values(field)?.pop() {
            Some(value) => T::read(value).map(Some),
            None => Some(None),
        }
    }
}

impl<T: Value> Field for T {
    fn read(given: &mut Given<'_>, field: &str) -> Option<Self> {
        T::read(given.values(field)?.pop()?)
    }
}

/// Reads a struct by its fields. If a field is missing from the list, this does not compile.
macro_rules! fields {
    ($Type:ident: $($field:ident),*) => {
        impl Field for $Type {
            fn read(given: &mut Given<'_>, _: &str) -> Option<Self> {
                Some(Self { $($field: Field::read(given, stringify!($field))?),* })
            }
        }
    };
}

fields!(Common: url, prefix, io_timeout, password_file, tls_ca, tls_cert, tls_key, quiet, verbose);
fields!(Terms: lease, exclusive, shared, slots, nonblock, wait, next, supersede,
    conflict_exit_code, at_least, reentrant, owner, min_replicas, label);
fields!(LeaseArgs: ttl);
fields!(HoldArgs: name, token, json);
fields!(Exec: common, terms, kill_after, on_lost, on_unreachable, foreground, name, command);
fields!(Acquire: common, terms, name, json, shell, while_pid);
fields!(Renew: common, ttl, hold);
fields!(Release: common, hold, force, now, id, reason);
fields!(Inspect: common, subject, attention, older_than, sort, json, names, watch);

/// The type of a value.
pub(super) trait Value: Sized {
    /// Reads a value. `None` leaves it to clap, which explains what is wrong with it.
    fn read(value: &OsStr) -> Option<Self>;
}

macro_rules! values {
    ($value:ident => $result:expr; $($Type:ty),*) => {
        $(impl Value for $Type {
            fn read($value: &OsStr) -> Option<Self> {
                $result
            }
        })*
    };
}

values!(value => value.to_str()?.parse().ok(); u8, u32, NonZeroU32, String, BoundedDuration,
    Timeout, Ttl, Name, Prefix, Owner, Token, Id, ProcessId, Subject);
values!(value => ValueEnum::from_str(value.to_str()?, false).ok(); OnLost, OnUnreachable, Order);
values!(value => Some(value.to_owned()); OsString);
values!(value => Some(value.to_owned().into()); PathBuf, Label);
