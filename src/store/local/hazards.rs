//! What makes a directory a bad place for locks.

use std::fs::canonicalize;

use nix::sys::statfs::statfs;

use super::Directory;
use crate::rules::servers::Facts;

/// File systems that another host may use too, by the numbers of statfs(2).
const NETWORK: [(u32, &str); 10] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x00C3_6400, "Ceph"),
    (0x5346_414F, "AFS"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x4750_4653, "GPFS"),
];

const TMPFS: u32 = 0x0102_1994;

/// Where programs such as systemd-tmpfiles delete old files.
const CLEANED: [&str; 2] = ["/tmp", "/var/tmp"];

pub(in crate::store) fn of(directory: &Directory) -> Facts {
    let path = canonicalize(directory.path()).unwrap_or_else(|_| directory.path().to_owned());
    // The type of the number differs between platforms, but only 32 bits count.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "these bits count")]
    let system = statfs(&path).map_or(0, |status| status.filesystem_type().0 as u32);
    let found = [
        ("network", NETWORK.iter().find(|it| it.0 == system).map(|it| it.1.to_owned())),
        ("cleaned", CLEANED.iter().find(|it| path.starts_with(it)).map(ToString::to_string)),
        ("tmpfs", (system == TMPFS).then(String::new)),
        ("writable", directory.hazard().map(|hazard| hazard.problem().to_owned())),
    ];
    let mut facts = Facts::default();
    facts.extend(found.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    facts
}
