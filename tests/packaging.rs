//! An installation contains the program, its man pages and completions. A removal leaves nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use crate::recipes::blocks_of;
use crate::support::{Finished, Running, binary, run, succeeds, yaml};
use crate::tls::Authority;
use tempfile::TempDir;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn go(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(ROOT).env("SOURCE_DATE_EPOCH", "1700000000");
    let output = run(&mut command);
    assert_eq!(output.code(), 0, "{program} {arguments:?}: {output:?}");
    output.out()
}

/// All files below a directory, with paths relative to it.
fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => left.push(entry.path()),
                false => {
                    found.push(entry.path().strip_prefix(directory).unwrap().display().to_string());
                }
            }
        }
    }
    found.sort();
    found
}

#[track_caller]
fn is_complete(files: &[String], parts: &[&str]) {
    for part in parts {
        assert!(files.iter().any(|file| file.ends_with(part)), "no {part} in {files:?}");
    }
}

/// Runs make with these variables, each as NAME=VALUE.
fn make(goal: &str, variables: &[&str]) {
    go("make", &[&[goal], variables].concat());
}

const INSTALLED: [&str; 6] = [
    "bin/rlock",
    "share/man/man1/rlock.1",
    "share/man/man1/rlock-exec.1",
    "share/bash-completion/completions/rlock",
    "share/zsh/site-functions/_rlock",
    "share/fish/vendor_completions.d/rlock.fish",
];

#[test]
fn make_installs_and_uninstalls() {
    let target = TempDir::new().unwrap();
    let destination = format!("DESTDIR={}", target.path().display());
    make("install", &[&destination, &format!("PROGRAM={}", binary())]);
    let root = target.path().join("usr/local");
    is_complete(&files(&root), &INSTALLED);
    assert_eq!(files(target.path()).len(), files(&root).len(), "all files are below PREFIX");
    let rlock = root.join("bin/rlock");
    assert!(go(&rlock.display().to_string(), &["--version"]).starts_with("rlock "));
    make("uninstall", &[&destination]);
    assert_eq!(files(target.path()), Vec::<String>::new());
}

fn with_extension(directory: &Path, extension: &str) -> PathBuf {
    let mut entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.extension().is_some_and(|it| it == extension)).unwrap()
}

#[test]
fn the_bill_of_materials_lists_what_is_in_the_binary() {
    let sbom = go("packaging/sbom", &[std::env::consts::ARCH, binary()]);
    let document: serde_json::Value = serde_json::from_str(&sbom).unwrap();
    assert_eq!(document["metadata"]["component"]["name"], "rlock");
    let components = document["components"].as_array().unwrap();
    let has = |name: &str| components.iter().any(|component| component["name"] == name);
    for inside in ["rustls", "redis", "dlmalloc", "std", "musl", "libunwind"] {
        assert!(has(inside), "{inside}");
    }
    for only_built_with in ["clap_derive", "serde_derive", "syn", "proc-macro2", "cc", "proptest"] {
        assert!(!has(only_built_with), "{only_built_with}");
    }
    for component in components {
        let purl = component["purl"].as_str().unwrap();
        assert!(purl.ends_with(&format!("@{}", component["version"].as_str().unwrap())), "{purl}");
        let is_of_cargo = purl.starts_with("pkg:cargo/");
        assert_eq!(component["hashes"][0]["content"].is_string(), is_of_cargo, "{purl}");
    }
    assert!(!sbom.contains("file:"), "no path of the build machine");
}

/// Packs a release for one machine, as `packaging/dist` does, but with the tested binary.
fn pack(directory: &Path) {
    let to = directory.display().to_string();
    let binary_to_pack = directory.join("rlock");
    let stripped = binary_to_pack.display().to_string();
    go("strip", &["-o", &stripped, binary()]);
    go("packaging/pack", &[std::env::consts::ARCH, &stripped, &to]);
    fs::remove_file(binary_to_pack).unwrap();
    go("packaging/index", &[&to]);
}

/// Puts a release into a directory, after packing it once for all tests. Returns the tarball.
fn release(directory: &Path) -> PathBuf {
    static PACKED: LazyLock<String> = LazyLock::new(|| {
        let packed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release");
        let _ = fs::remove_dir_all(&packed);
        fs::create_dir_all(&packed).unwrap();
        pack(&packed);
        format!("{}/.", packed.display())
    });
    go("cp", &["-r", &PACKED, &directory.display().to_string()]);
    with_extension(directory, "gz")
}

/// Serves redirections over TLS to this URL. Returns the URL.
const REDIRECTION: &str = "
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(302)
        self.send_header('Location', sys.argv[1] + self.path)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(f'https://localhost:{server.server_port}', flush=True)
server.serve_forever()
";

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

fn install(from: &str, prefix: &Path) -> Output {
    let script = Path::new(ROOT).join("packaging/install.sh");
    run(Command::new("sh").arg(script).arg(from).arg(prefix))
}

#[test]
fn the_same_files_are_packed_into_the_same_bytes() {
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    pack(one.path());
    pack(other.path());
    let packed = files(one.path());
    assert_eq!(packed, files(other.path()));
    is_complete(&packed, &[".tar.gz", ".deb", "Packages", "Release", "install.sh", "SHA256SUMS"]);
    for file in packed {
        let same = fs::read(one.path().join(&file)).unwrap()
            == fs::read(other.path().join(&file)).unwrap();
        assert!(same, "{file}");
    }
}

#[test]
fn a_release_is_installed_from_a_tarball_a_directory_or_a_url() {
    let page = TempDir::new().unwrap();
    let tarball = release(page.path());
    let (_server, url) = serve(page.path());
    let froms = [tarball.display().to_string(), page.path().display().to_string(), url];
    for from in froms {
        let prefix = TempDir::new().unwrap();
        // The second installation replaces the first.
        for _ in 0..2 {
            let output = install(&from, prefix.path());
            assert_eq!(output.code(), 0, "{from}: {output:?}");
        }
        is_complete(
            &files(prefix.path()),
            &[
                "bin/rlock",
                "share/man/man1/rlock.1",
                "share/bash-completion/completions/rlock",
                "share/doc/rlock/README.md",
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
    let signing = blocks_of(page, "## Sign a release");
    let place = TempDir::new().unwrap();
    let [dist, keys, root] = ["dist", "keys", "root"].map(|name| place.path().join(name));
    let sources = root.join("etc/apt/sources.list.d");
    for directory in [&dist, &keys, &sources, &root.join("var/lib/dpkg")] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::set_permissions(&keys, Permissions::from_mode(0o700)).unwrap();
    let shell = |directory: &Path, script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-ec", script]).current_dir(directory);
        shell.env("GNUPGHOME", &keys).env("HOME", place.path()).env("KNOWN_SHA256", "0");
        run(&mut shell)
    };
    release(&dist);
    let key = "gpg --batch --passphrase '' --quick-generate-key release@example ed25519 sign never";
    for script in [key, &signing[0], "gpgconf --kill all"] {
        succeeds(&shell(place.path(), script));
    }

    // apt, with its own root directory.
    let status = root.join("var/lib/dpkg/status");
    fs::write(&status, "").unwrap();
    let source =
        many[1].replace("https://files.example", &format!("file:{}", place.path().display()));
    let source = source
        .replace("/rlock/", "/dist/")
        .replace("/etc/apt/keyrings", &dist.display().to_string());
    fs::write(sources.join("rlock.sources"), source).unwrap();
    let options = format!(
        "-o Dir={} -o Dir::State::Status={} -o APT::Sandbox::User=root",
        root.display(),
        status.display()
    );
    let lists = root.join("var/lib/apt/lists");
    let update = format!("rm -rf {}; apt-get {options} --error-on=any update", lists.display());
    succeeds(&shell(&root, &update));
    succeeds(&shell(&root, &format!("apt-get {options} download rlock")));
    assert_eq!(
        fs::read(with_extension(&root, "deb")).unwrap(),
        fs::read(with_extension(&dist, "deb")).unwrap()
    );

    // Other systems.
    let verify = &signing[1];
    succeeds(&shell(&dist, verify));
    assert!(place.path().join(".local/bin/rlock").exists());
    let pinned = format!("{} :", signing[2].trim_end());
    assert_eq!(shell(&dist, &pinned).code(), 1, "another checksum");

    let changes = [
        ("install.sh", "usage", verify),
        ("SHA256SUMS", "rlock", verify),
        ("InRelease", "Packages", &update),
    ];
    for (file, word, check) in changes {
        let was = fs::read_to_string(dist.join(file)).unwrap();
        fs::write(dist.join(file), was.replacen(word, "other", 1)).unwrap();
        assert_ne!(shell(&dist, check).code(), 0, "{file}");
        fs::write(dist.join(file), was).unwrap();
    }
}

/// The workflow of GitHub sets these variables.
#[test]
fn the_action_installs_a_release_for_the_next_steps() {
    let page = TempDir::new().unwrap();
    release(page.path());
    let action = yaml(&fs::read_to_string(Path::new(ROOT).join("packaging/action.yml")).unwrap());
    let step = &action["runs"]["steps"][0];
    assert_eq!(step["env"]["FROM"], "${{ inputs.from }}");
    let temp = TempDir::new().unwrap();
    let path = temp.path().join("path");
    let mut shell = Command::new("sh");
    shell.args(["-ec", step["run"].as_str().unwrap()]).env("FROM", page.path());
    shell.env("GITHUB_ACTION_PATH", Path::new(ROOT).join("packaging"));
    shell.env("GITHUB_PATH", &path).env("RUNNER_TEMP", temp.path());
    succeeds(&run(&mut shell));
    let added = fs::read_to_string(path).unwrap();
    assert!(go(&format!("{}/rlock", added.trim()), &["--version"]).starts_with("rlock "));
}

#[test]
fn cargo_binstall_finds_the_binary_in_the_tarball() {
    let page = TempDir::new().unwrap();
    let tarball = release(page.path());
    let metadata = go("cargo", &["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let package = &metadata["packages"][0];
    let expanded = |template: &str| {
        let mut text = package["metadata"]["binstall"][template].as_str().unwrap().to_owned();
        let version = package["version"].as_str().unwrap();
        let values = [("name", "rlock"), ("bin", "rlock"), ("version", version)];
        for (name, value) in values.into_iter().chain([("target-arch", std::env::consts::ARCH)]) {
            text = text.replace(&format!("{{ {name} }}"), value);
        }
        text
    };
    assert_eq!(expanded("pkg-url").rsplit('/').next(), tarball.file_name().unwrap().to_str());
    go("tar", &["-tzf", &tarball.display().to_string(), &expanded("bin-dir")]);
}

#[test]
fn an_installation_from_https_never_falls_back_to_http() {
    let page = TempDir::new().unwrap();
    release(page.path());
    let (_server, url) = serve(page.path());
    let authority = Authority::new();
    authority.signs("server", "DNS:localhost", "-days 2");
    let mut python = Command::new("python3");
    python.args(["-u", "-c", REDIRECTION, url.trim_end_matches('/')]);
    python.args([authority.file("server.crt"), authority.file("server.key")]);
    let mut redirection = Running::start(&mut python);
    let from = redirection.line();
    let prefix = page.path().join("prefix");
    for trusted in [authority.file("ca.crt"), "/dev/null".into()] {
        let mut sh = Command::new("sh");
        sh.arg(Path::new(ROOT).join("packaging/install.sh")).arg(&from).arg(&prefix);
        run(sh.env("CURL_CA_BUNDLE", trusted)).exits(1).says("cannot get https://");
        assert!(!prefix.exists());
    }
}

#[test]
fn installing_keeps_existing_links_and_directory_modes() {
    let page = TempDir::new().unwrap();
    release(page.path());
    let directory = TempDir::new().unwrap();
    let prefix = directory.path().join("prefix");
    let [programs, share] = [directory.path().join("programs"), prefix.join("share")];
    for made in [&programs, &share] {
        fs::create_dir_all(made).unwrap();
    }
    symlink(&programs, prefix.join("bin")).unwrap();
    fs::set_permissions(&share, Permissions::from_mode(0o2750)).unwrap();
    let output = install(&page.path().display().to_string(), &prefix);
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(fs::symlink_metadata(prefix.join("bin")).unwrap().is_symlink());
    assert!(programs.join("rlock").exists());
    assert_eq!(fs::metadata(&share).unwrap().permissions().mode() & 0o7777, 0o2750);
}

#[test]
fn what_is_not_a_release_is_not_installed() {
    let page = TempDir::new().unwrap();
    let tarball = release(page.path());
    let elsewhere = TempDir::new().unwrap();
    let prefix = elsewhere.path().join("prefix");
    let refused = |from: &str, because: &str| {
        let output = install(from, &prefix);
        assert_eq!(output.code(), 1, "{from}: {output:?}");
        assert!(output.err().contains(because), "{from}: {output:?}");
        assert!(!prefix.exists(), "{from}");
    };
    refused("-h", "usage: ");
    refused("", "usage: ");
    refused(&elsewhere.path().display().to_string(), "SHA256SUMS");
    refused("rlock-9-s390x-linux.tar.gz", "not for this machine");
    refused("ftp://127.0.0.1/", "cannot get");
    let other = tarball.display().to_string().replace("rlock-", "rlock-0-");
    refused(&other, "SHA256SUMS");

    let mut bytes = fs::read(&tarball).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&tarball, bytes).unwrap();
    refused(&page.path().display().to_string(), "is damaged");
    let sums = page.path().join("SHA256SUMS");
    let twice = fs::read_to_string(&sums).unwrap().repeat(2);
    fs::write(sums, twice).unwrap();
    refused(&page.path().display().to_string(), "several versions");
}

#[test]
fn make_installs_the_build_of_cargo_below_any_prefix() {
    let directory = TempDir::new().unwrap();
    // As cargo lays out its target directory.
    let build = directory.path().join("the target/release");
    fs::create_dir_all(&build).unwrap();
    fs::copy(binary(), build.join("rlock")).unwrap();
    let target = format!("CARGO_TARGET_DIR={}", build.parent().unwrap().display());
    let root = directory.path().join("a root");
    let destination = format!("DESTDIR={}", root.display());
    make("install", &[&target, &destination, "PREFIX=/opt/r lock"]);
    is_complete(&files(&root.join("opt/r lock")), &INSTALLED);
    assert_eq!(files(&root).len(), files(&root.join("opt/r lock")).len());
    // Files of other programs stay.
    let other = root.join("opt/r lock/share/man/man1/other.1");
    fs::write(&other, "").unwrap();
    make("uninstall", &[&destination, "PREFIX=/opt/r lock"]);
    assert_eq!(files(&root), ["opt/r lock/share/man/man1/other.1"]);

    // From the environment too, and without DESTDIR.
    let prefix = directory.path().join("prefix");
    let mut install = Command::new("make");
    install.arg("install").current_dir(ROOT).env("PREFIX", &prefix);
    install.env("CARGO_TARGET_DIR", build.parent().unwrap());
    assert_eq!(run(&mut install).code(), 0);
    is_complete(&files(&prefix), &INSTALLED);
}

#[test]
fn the_debian_package_is_installed_and_removed() {
    let directory = TempDir::new().unwrap();
    release(directory.path());
    let package = with_extension(directory.path(), "deb");

    let root = directory.path().join("root");
    fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
    fs::create_dir_all(root.join("var/lib/dpkg/updates")).unwrap();
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = |arguments: &[&str]| {
        let log = format!("--log={}", directory.path().join("log").display());
        let root = format!("--root={}", root.display());
        let all = [&[&root, &log, "--force-not-root"], arguments].concat();
        go("dpkg", &all)
    };
    dpkg(&["--install", &package.display().to_string()]);
    let installed = files(&root.join("usr"));
    is_complete(
        &installed,
        &[
            "bin/rlock",
            "share/man/man1/rlock.1.gz",
            "share/man/man1/rlock-inspect.1.gz",
            "bash-completion/completions/rlock",
            "zsh/vendor-completions/_rlock",
            "fish/vendor_completions.d/rlock.fish",
            "share/doc/rlock/copyright",
        ],
    );
    let rlock = root.join("usr/bin/rlock").display().to_string();
    assert!(go(&rlock, &["--version"]).starts_with("rlock "));
    let listed = dpkg(&["--status", "rlock"]);
    assert!(listed.contains("Status: install ok installed"), "{listed}");
    dpkg(&["--purge", "rlock"]);
    let left = files(&root).into_iter().filter(|file| file.starts_with("usr/"));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<String>::new());
}
