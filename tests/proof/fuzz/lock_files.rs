//! The files of `local:`.

use std::fs;

use super::prints::view;
use super::promises::one_line;
use super::requests::{ask, key, open};
use rlock::store::local::copies;

/// Checks the files of `local:`. The first byte selects a request, whether the lock has a guard,
/// and whether the rest is the whole state file or only the content of a copy in it. A state that
/// cannot be read is left as it is, and what rlock writes can be read again.
pub fn lock_files(bytes: &[u8]) {
    let Some((request, state)) = bytes.split_first() else { return };
    let state = &*match request & 0x20 {
        0 => state.to_vec(),
        _ => copies::new_file(state),
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join(".rlock:L.state");
    fs::write(&file, state).expect("a state");
    if request & 0x10 == 0 {
        fs::write(directory.path().join("rlock:L.lock"), "").expect("a guard");
    }
    let mut store = open(&format!("local:{}", directory.path().display()), 0);
    let before = store.inspect(&key());
    match &before {
        Ok(seen) => view(seen),
        Err(failure) => one_line(&failure.to_string()),
    }
    let changed = ask(&mut *store, request & 7);
    let after = store.inspect(&key());
    after.iter().for_each(view);
    if before.is_ok() {
        assert!(after.is_ok(), "rlock cannot read what it wrote: {after:?}");
    } else {
        assert!(changed.is_err() || request & 7 == 7, "{before:?}, then {changed:?}");
        assert_eq!(fs::read(file).unwrap_or_default(), state, "{before:?}");
    }
}
