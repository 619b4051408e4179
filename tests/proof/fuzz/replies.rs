//! What servers reply.

use super::prints::view;
use super::promises::{one_line, printable};
use rlock::rules::quorum::Run;
use rlock::rules::{Answer, Failure, Key, Prefix, Release, Renewal, Verdict};
use rlock::store::server::cluster::masters_in;
use rlock::store::server::node::handshake::is_master;
use rlock::store::server::scripts::{self, Call};
use rlock::store::server::{refusal, reply};
use rlock::store::wire::{Address, Reader, ServerError, Value};

/// Checks the first reply in `bytes` as that to each script and command, and as an error.
pub fn replies(bytes: &[u8]) {
    let Some(value) = first_reply(bytes) else { return };
    if let Value::ServerError(error) = &value {
        refused(error);
    }
    match reply::verdict(value.clone()) {
        Some(Verdict::Answer(Answer::Busy(seen) | Answer::Queued { view: seen, .. })) => {
            view(&seen)
        }
        Some(Verdict::Answer(Answer::Ended(why))) => printable(&why.to_string()),
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
    let page = reply::view(value.clone());
    let _ = reply::left(value.clone());
    let views = [page, before];
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

/// The first reply in `bytes`, if they contain a complete one.
fn first_reply(mut bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader::default();
    while reader.read_from(&mut bytes).is_ok_and(|count| count > 0) {}
    let mut rest = usize::MAX;
    reader.reply(&mut rest).ok()?
}
