//! Releases: what is packed, installed and removed. The tools that pack them take minutes to build, so
//! `cargo test` alone leaves these tests out: `cargo test --test packages`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(missing_docs)]

mod packaging;
mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use packaging::{files, go, installer, is_complete};
use support::{Finished, Running, binary, blocks_of, run};
use tempfile::TempDir;

const MACHINE: &str = std::env::consts::ARCH;

fn with_extension(directory: &Path, extension: &str) -> PathBuf {
    let mut entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.extension().is_some_and(|it| it == extension)).unwrap()
}

/// Puts a release into a directory, after packing it once for all tests as `packaging/dist` does, but
/// with the tested binary. Returns the tarball.
fn release(directory: &Path) -> PathBuf {
    static PACKED: LazyLock<String> = LazyLock::new(|| {
        let packed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release");
        let _ = fs::remove_dir_all(&packed);
        fs::create_dir_all(&packed).unwrap();
        let stripped = TempDir::new().unwrap();
        let stripped = stripped.path().join("rlock").display().to_string();
        let packed = packed.display().to_string();
        go("strip", &["-o", &stripped, binary()]);
        // Packing again makes the same files.
        let again = TempDir::new().unwrap();
        let again = again.path().display().to_string();
        for directory in [&packed, &again] {
            go("packaging/pack", &[directory, &format!("{MACHINE}={stripped}")]);
        }
        go("diff", &["-r", &packed, &again]);
        packed + "/."
    });
    go("cp", &["-r", &PACKED, &directory.display().to_string()]);
    with_extension(directory, "gz")
}

#[test]
fn packages_are_installed_and_removed() {
    let page = TempDir::new().unwrap();
    release(page.path());
    for (extension, program, zsh) in [
        ("deb", "dpkg --force-script-chrootless --log=/dev/null", "vendor-completions/_rlock"),
        // The scripts of an RPM need a shell in the root directory.
        ("rpm", "rpm --nodeps --noscripts", "site-functions/_rlock"),
    ] {
        let package = with_extension(page.path(), extension).display().to_string();
        let root = TempDir::new().unwrap();
        for directory in ["info", "updates"] {
            fs::create_dir_all(root.path().join("var/lib/dpkg").join(directory)).unwrap();
        }
        fs::write(root.path().join("var/lib/dpkg/status"), "").unwrap();
        let root_option = format!("--root={}", root.path().display());
        let change = |how: &str, what: &str| {
            let words = program.split(' ').chain([&*root_option, how, what]);
            go("unshare", &["--map-root-user"].into_iter().chain(words).collect::<Vec<_>>());
            let program = root.path().join("usr");
            if program.exists() { files(&program) } else { vec![] }
        };
        let installed = change("--install", &package);
        is_complete(&installed, &["usr/bin/rlock", "LICENSES-LIBRARIES", "docs/recipes.md", zsh]);
        let rlock = root.path().join("usr/bin/rlock").display().to_string();
        assert!(go(&rlock, &["--version"]).starts_with("rlock "));
        let remove = if extension == "deb" { "--purge" } else { "--erase" };
        assert!(change(remove, "rlock").iter().all(|file| file.contains("/rpm/")), "{extension}");
    }
}

/// Serves the files of a directory. Returns the URL.
fn serve(directory: &Path) -> (Running, String) {
    let mut python = Command::new("python3");
    python.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0", "--directory"]);
    let mut server = Running::start(python.arg(directory));
    // Serving HTTP on 127.0.0.1 port 8000 (http://127.0.0.1:8000/) ...
    let line = server.line();
    let url = line.split(['(', ')']).nth(1).unwrap_or_else(|| panic!("no URL: {line}"));
    (server, url.to_owned())
}

#[test]
fn a_release_is_installed_from_a_tarball_a_directory_or_a_url() {
    let page = TempDir::new().unwrap();
    let tarball = release(page.path());
    let (_server, url) = serve(page.path());
    for from in [tarball.display().to_string(), page.path().display().to_string(), url] {
        let directory = TempDir::new().unwrap();
        let [prefix, programs] = ["prefix", "programs"].map(|name| directory.path().join(name));
        // Links and the modes of directories stay as they are.
        let share = prefix.join("share");
        fs::create_dir_all(&share).unwrap();
        fs::set_permissions(&share, Permissions::from_mode(0o2750)).unwrap();
        fs::create_dir(&programs).unwrap();
        symlink(&programs, prefix.join("bin")).unwrap();
        // The second installation replaces the first.
        for _ in 0..2 {
            run(&mut installer(&from, &prefix)).exits(0);
        }
        assert!(programs.join("rlock").exists());
        assert_eq!(fs::metadata(&share).unwrap().permissions().mode() & 0o7777, 0o2750);
        is_complete(
            &files(&prefix),
            &[
                "share/man/man1/rlock.1",
                "share/bash-completion/completions/rlock",
                "share/doc/rlock/LICENSE-MIT",
                "share/doc/rlock/LICENSES-LIBRARIES",
            ],
        );
    }
}

#[test]
fn a_signed_release_is_verified_before_it_is_installed() {
    let page = include_str!("../docs/install.md");
    let many = blocks_of(page, "## On many hosts");
    let [sign, verify, pin] = &blocks_of(page, "## Sign a release")[..] else { panic!("three") };
    let place = TempDir::new().unwrap();
    let [dist, keys, root] = ["dist", "keys", "root"].map(|name| place.path().join(name));
    let sources = root.join("etc/apt/sources.list.d");
    for directory in [&dist, &keys, &sources] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::set_permissions(&keys, Permissions::from_mode(0o700)).unwrap();
    let shell = |directory: &Path, script: &str| -> Output {
        let mut shell = Command::new("sh");
        shell.args(["-ec", script]).current_dir(directory);
        shell.env("GNUPGHOME", &keys).env("HOME", place.path()).env("KNOWN_SHA256", "0");
        run(&mut shell)
    };
    release(&dist);
    let key = "gpg --batch --passphrase '' --quick-generate-key release@example ed25519 sign never";
    for script in [key, sign, "gpgconf --kill all"] {
        shell(place.path(), script).exits(0);
    }

    // apt, with its own root directory.
    let source = many[0]
        .replace("https://files.example/rlock/", &format!("file:{}/", dist.display()))
        .replace("/etc/apt/keyrings", &dist.display().to_string());
    fs::write(sources.join("rlock.sources"), source).unwrap();
    let apt = "apt-get -o Dir=$PWD -o Dir::State::Status=$PWD/status -o APT::Sandbox::User=root";
    let fresh = ": >status; rm -rf var; mkdir -p var/lib/apt/lists/partial";
    let update = format!("{fresh}; {apt} --error-on=any update");
    shell(&root, &update).exits(0);
    shell(&root, &format!("{apt} download rlock && cmp *.deb ../dist/*.deb")).exits(0);

    // Other systems.
    shell(&dist, verify).exits(0);
    assert!(place.path().join(".local/bin/rlock").exists());
    // Another checksum.
    shell(&dist, pin).exits(1);

    for (file, word, directory, check) in [
        ("install.sh", "usage", &dist, verify),
        ("SHA256SUMS", "rlock", &dist, verify),
        ("InRelease", "Packages", &root, &update),
    ] {
        let was = fs::read_to_string(dist.join(file)).unwrap();
        fs::write(dist.join(file), was.replacen(word, "other", 1)).unwrap();
        assert_ne!(shell(directory, check).code(), 0, "{file}");
        fs::write(dist.join(file), was).unwrap();
    }
}

#[test]
fn what_is_not_a_release_is_not_installed() {
    let page = TempDir::new().unwrap();
    let tarball = release(page.path());
    let page = page.path().display().to_string();
    let prefix = Path::new(&page).join("prefix");
    let refused = |from: &str, because: &str| {
        run(&mut installer(from, &prefix)).exits(1).says(because);
        assert!(!prefix.exists(), "{from}");
    };
    refused("", "usage: ");
    refused("/nowhere", "SHA256SUMS");
    refused("rlock-9-s390x-linux.tar.gz", "not for this machine");
    refused(&tarball.display().to_string().replace("rlock-", "rlock-0-"), "SHA256SUMS");

    let mut bytes = fs::read(&tarball).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&tarball, bytes).unwrap();
    refused(&page, "is damaged");
}
