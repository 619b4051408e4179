//! Checks of what servers reply; see `crate::fuzz`.

#![allow(clippy::expect_used, reason = "a check that cannot be made must not pass")]

use std::collections::HashMap;

use super::cluster::masters_in;
use super::node::Run;
use super::node::handshake::is_master;
use super::refusal;
use super::reply;
use super::scripts::{self, Call};
use crate::fuzz::{one_line, parts, printable, text, view};
use crate::lock::{Key, Prefix};
use crate::store::model::{RecordedHold, Snapshot};
use crate::store::wire::{Address, ServerError, Value, first_reply};
use crate::store::{Answer, Failure, Release, Renewal, Verdict};

/// Checks one reply as that to each script and command.
pub(crate) fn replies(bytes: &[u8]) {
    let Some(value) = first_reply(bytes) else { return };
    if let Value::ServerError(error) = &value {
        refused(error);
    }
    match reply::verdict(value.clone()) {
        Some(Verdict::Answer(Answer::Busy(seen) | Answer::Queued { view: seen, .. })) => {
            view(&seen)
        }
        Some(Verdict::Answer(Answer::Over(why))) => printable(&why.to_string()),
        Some(Verdict::Answer(Answer::Superseded(newer))) => printable(&newer.to_string()),
        Some(Verdict::Answer(Answer::Removed(operator))) => printable(&operator.to_string()),
        _ => {}
    }
    if let Some(Renewal::NotHeld(why)) = reply::renewal(value.clone()) {
        printable(&why.to_string());
    }
    if let Some(Release::NotHeld(why)) = reply::release(value.clone()) {
        printable(&why.to_string());
    }
    let before = reply::revoked(value.clone()).and_then(|(before, _)| before);
    let views = [reply::left(value.clone()), reply::view(value.clone()), before];
    views.iter().flatten().for_each(view);
    let _ = is_master(&value);
    let _ = Run::from_info(&value);
    for here in ["redis://h:1", "unix:///s"] {
        let here = Address::parse(here).expect("a URL");
        for (host, port) in masters_in(&value).unwrap_or_default() {
            let named = here.named(&host, port).map(|server| server.to_string());
            named.iter().for_each(|server| printable(server));
        }
    }
}

fn refused(error: &ServerError) {
    let address = Address::parse("redis://h:1").expect("a URL");
    let key = Key::new(&Prefix::default(), &"L".parse().expect("a name"));
    let call = Call::new(scripts::ACQUIRE, &key, None, 0);
    let _ = refusal::lacks_a_command(error);
    for refusal in [refusal::of(error, &address), refusal::of_script(error, &address, &call)] {
        one_line(&Failure::from(refusal).to_string());
    }
}

/// Checks a lock whose keys contain what another tool may have written. The input is the guard, then
/// a token and a deadline for each hold, then an empty text, then the fields of the state.
pub(crate) fn snapshots(bytes: &[u8]) {
    let mut parts = parts(bytes).map(|part| text(part).into_owned());
    let guard = parts.next().filter(|guard| !guard.is_empty());
    let mut holds = Vec::new();
    while let Some(token) = parts.next().filter(|token| !token.is_empty()) {
        holds.push((token, parts.next().and_then(|text| text.parse().ok()).unwrap_or(0)));
    }
    let mut state = HashMap::new();
    while let (Some(field), Some(value)) = (parts.next(), parts.next()) {
        state.insert(field, value);
    }
    let hold = |(token, deadline): (String, u64)| {
        let mut hold = RecordedHold { token, deadline, details: None };
        hold.details = state.get(&hold.field()).cloned();
        hold
    };
    let holds = holds.into_iter().map(hold).collect();
    let fields = Snapshot::FIELDS.map(|field| state.get(field).cloned());
    let seen = Snapshot { guard, fields, holds }.view(1_000_000);
    seen.iter().for_each(view);
}
