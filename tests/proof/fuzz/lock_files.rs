//! The files of `local:`.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::prints::view;
use super::promises::one_line;
use rlock::rules::{Answer, Failure, Key, Mode, Outcome, Prefix, Request, Revocation, Token, Ttl};
use rlock::store::Store;
use rlock::store::local::copies;
use rlock::store::location::Location;

/// Checks the files of `local:`. The first byte selects a request, whether the lock has a guard,
/// and whether the rest is the whole state file or only the content of a copy in it. A state that
/// cannot be read is left as it is, and what rlock writes can be read again.
pub fn lock_files(bytes: &[u8]) {
    let Some((request, state)) = bytes.split_first() else { return };
    let state = &*match request & 0x20 {
        0 => state.to_vec(),
        _ => copies::new_file(state),
    };
    let directory = Directory::with(state, request & 0x10 == 0).expect("a temporary directory");
    let url = format!("local:{}", directory.0.display());
    let location = Location::parse(&[&url], None).expect("a URL");
    let mut store = location.open(Duration::from_secs(2), 0).expect("a store");
    let key = key();
    let before = store.inspect(&key);
    match &before {
        Ok(seen) => view(seen),
        Err(failure) => one_line(&failure.to_string()),
    }
    let changed = change(&mut *store, &key, request & 7);
    if let Err(failure) = &changed {
        one_line(&failure.to_string());
    }
    let after = store.inspect(&key);
    after.iter().for_each(view);
    if before.is_ok() {
        assert!(after.is_ok(), "rlock cannot read what it wrote: {after:?}");
    } else {
        assert!(changed.is_err() || request & 7 == 7, "{before:?}, then {changed:?}");
        assert_eq!(fs::read(directory.state()).unwrap_or_default(), state, "{before:?}");
    }
}

fn change(store: &mut dyn Store, key: &Key, what: u8) -> Result<(), Failure> {
    let token = Token::recorded("0123456789").expect("a token");
    let request = Request { token: token.clone(), ..request() };
    match what {
        0 => match store.acquire(&request, &[], None)? {
            Answer::Busy(seen) | Answer::Queued { view: seen, .. } => view(&seen),
            _ => {}
        },
        1 => drop(store.renew(key, &token, None, None)?),
        2 => drop(store.release(key, &token, Outcome::Exit(0))?),
        3 => store.leave(&request)?,
        4 => view(&store.revoke(key, Revocation::Graceful, "me")?),
        5 => view(&store.revoke(key, Revocation::Now, "me")?),
        6 => drop(store.acquire(&Request { mode: Mode::Shared, ..request }, &[], None)?),
        _ => drop(store.list(&Prefix::default(), None, true)?),
    }
    Ok(())
}

pub(super) fn request() -> Request {
    Request {
        reentrant: true,
        heartbeat: Some(Duration::from_secs(10)),
        client: "host\nuser\n7\nmake\nexec\n".into(),
        ..Request::plain(key(), Ttl::DEFAULT)
    }
}

fn key() -> Key {
    Key::new(&Prefix::default(), &"L".parse().expect("a name"))
}

/// A directory with one lock, for one case.
struct Directory(PathBuf);

impl Directory {
    fn with(state: &[u8], has_guard: bool) -> io::Result<Self> {
        static CASES: AtomicUsize = AtomicUsize::new(0);
        let case = CASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("rlock-fuzz-{}-{case}", process::id());
        let directory = Self(std::env::temp_dir().join(name));
        fs::create_dir(&directory.0)?;
        fs::write(directory.state(), state)?;
        if has_guard {
            fs::write(directory.0.join("rlock:L.lock"), "")?;
        }
        Ok(directory)
    }

    fn state(&self) -> PathBuf {
        self.0.join(".rlock:L.state")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
