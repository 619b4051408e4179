//! What is shown to users.

use super::promises::printable;
use rlock::inspect::problem::Here;
use rlock::inspect::style::Style;
use rlock::inspect::{Inspected, json, page, table};
use rlock::rules::{ClientInfo, Fence, Mode, Name, Prefix, Stored, View};
use rlock::text::{Line, at_most, columns, cut, cut_middle, quoted};

/// Checks that any text can be shown, cut and quoted, and that the details of any client
/// can be shown and read again.
pub(super) fn prints(text: &str) {
    let shown = rlock::text::printable(text);
    printable(&shown);
    assert_eq!(rlock::text::printable(&shown), shown);
    let line = Line::new(text);
    printable(line.as_str());
    assert_eq!(Line::new(line.as_str()).as_str(), line.as_str());
    for limit in [0, 1, 2, 7, 80] {
        let start = at_most(limit, text);
        assert!(
            text.starts_with(start)
                && start.len() <= limit
                && start.len() + 4 > limit.min(text.len())
        );
        for cut in [cut(&shown, limit), cut_middle(&shown, limit)] {
            assert!(columns(&cut) <= limit, "{cut:?}");
        }
    }
    assert_eq!(unquoted(&quoted(text)), text);
    client(&ClientInfo::from_stored(text));
}

/// A word as a POSIX shell reads it, if it consists of bare and single-quoted parts.
fn unquoted(word: &str) -> String {
    let (mut plain, mut in_quotes, mut characters) = (String::new(), false, word.chars());
    while let Some(c) = characters.next() {
        match c {
            '\'' => in_quotes = !in_quotes,
            '\\' if !in_quotes => plain.extend(characters.next()),
            c => {
                assert!(in_quotes || !"|&;<>()$`\" \t\n*?[#~=".contains(c), "{word:?}");
                plain.push(c);
            }
        }
    }
    assert!(!in_quotes && !word.is_empty(), "{word:?}");
    plain
}

fn client(client: &ClientInfo) {
    printable(&client.to_string());
    let label = client.label().unwrap_or_default();
    printable(label);
    assert!(label.len() <= 1_000);
    for name in [&client.host, &client.user, &client.command] {
        assert!(name.len() <= 255, "{name:?}");
    }
    assert_eq!(ClientInfo::from_stored(&client.to_stored()), *client);
}

/// Checks that a lock can be shown in each form, even if other programs wrote its data.
pub(super) fn view(view: &View) {
    let prefix = Prefix::default();
    let name: Name = "L".parse().expect("a name");
    let typed = |_: &str, _: &Name| String::new();
    let here = Here { host: "host".into(), typed: &typed, at_most: None };
    let locks = [Inspected::new(name, view.clone(), &here)];
    for width in [None, Some(0), Some(80)] {
        let style = Style { width, color: false, waiters: 10 };
        page::page(&locks[0], &[], style).lines().for_each(printable);
        table::list(&locks, style).iter().flat_map(|text| text.lines()).for_each(printable);
    }
    let json = serde_json::to_string(&json::documents(&prefix, &locks, 1));
    assert!(json.is_ok_and(|json| !json.contains(rlock::text::is_unsafe)));
    printable(&view.to_string());
    // Whatever the server counts, and whichever holders are revoked.
    let mut revoked = view.clone().up_to(Fence(1));
    revoked.add_revoked_earlier(view.holders.clone(), &view.history);
    printable(&revoked.to_string());
    for mode in [Mode::Exclusive, Mode::Shared] {
        printable(&view.mismatch(mode));
    }
    let clients = view.holders.iter().map(|holder| &holder.client);
    let clients = clients.chain(view.waiters.iter().map(|waiter| &waiter.client));
    clients.chain(view.history.iter().map(|entry| &entry.client)).for_each(client);
}
