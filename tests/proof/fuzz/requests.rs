//! Requests to a store that may answer anything.

use std::time::Duration;

use super::prints::view;
use super::promises::one_line;
use rlock::rules::{
    Answer, ClientInfo, Failure, Key, Mode, Operator, Outcome, Owner, Prefix, Request, Revocation,
    Token, Ttl,
};
use rlock::store::location::Location;
use rlock::store::{Filter, Force, NEVER, Store};

pub(super) fn key() -> Key {
    Key::new(&Prefix::default(), &"L".parse().expect("a name"))
}

pub(super) fn open(url: &str, replicas: u32) -> Box<dyn Store> {
    let location = Location::parse(&[url], None).expect("a URL");
    location.open(Duration::from_secs(2), replicas).expect("a store")
}

/// Sends one of the requests, and checks that all it tells can be shown.
pub(super) fn ask(store: &mut dyn Store, what: u8) -> Result<(), Failure> {
    let asked = answered(store, what);
    if let Err(failure) = &asked {
        one_line(&failure.to_string());
    }
    asked
}

fn answered(store: &mut dyn Store, what: u8) -> Result<(), Failure> {
    let request = Request {
        mode: if what == 6 { Mode::Shared } else { Mode::Exclusive },
        reentrant: true,
        heartbeat: Some(Duration::from_secs(10)),
        client: ClientInfo { pid: 7, ..ClientInfo::default() },
        ..Request::plain(key(), Token::new([what; 16]), Owner::new([7; 16]), Ttl::DEFAULT)
    };
    let (key, token) = (&request.key, &request.token);
    match what {
        0 | 6 => {
            let answer = store.acquire(&request, NEVER)?;
            if let Answer::Busy(seen) | Answer::Queued { view: seen, .. } = &answer {
                view(seen);
            }
            if let Answer::Queued { .. } = answer {
                store.sleep(&request, Duration::from_millis(1), NEVER)?;
            }
        }
        1 => drop(store.renew(key, token, None, NEVER)?),
        2 => drop(store.release(key, token, Outcome::Exit(0))?),
        3 => store.withdraw(&request, NEVER)?,
        4 => {
            let force = Force { how: Revocation::Graceful, by: Operator::default() };
            view(&store.revoke(key, &force)?);
        }
        5 => {
            view(&store.inspect_verified(key, true)?);
            store.hazards().iter().for_each(|warning| one_line(warning));
        }
        _ => {
            let filter = Filter { prefix: Prefix::default(), pattern: None, with_free: true };
            let listing = store.list(&filter)?;
            let unread = listing.locks.iter().filter_map(|(_, seen)| seen.as_ref().err());
            unread.chain(&listing.failures).for_each(|failure| one_line(&failure.to_string()));
            listing.locks.iter().filter_map(|(_, seen)| seen.as_ref().ok()).for_each(view);
        }
    }
    Ok(())
}
