//! A Python with the libraries and the validators in tests/requirements.txt.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use super::{Finished, run};

/// The path of that Python; the programs of its packages are beside it.
pub fn python() -> &'static Path {
    static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| {
        let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/venv/bin/python");
        std::env::var_os("RLOCK_TEST_PYTHON").map_or(default, PathBuf::from)
    });
    assert!(PYTHON.exists(), "{} is missing: run ./tests/run", PYTHON.display());
    &PYTHON
}

pub fn yaml(document: &str) -> serde_json::Value {
    const TO_JSON: &str = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.argv[1])))";
    let parsed = run(Command::new(python()).args(["-c", TO_JSON, document]));
    assert_eq!(parsed.code(), 0, "{document}: {parsed:?}");
    serde_json::from_slice(&parsed.stdout).unwrap()
}
