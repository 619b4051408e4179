//! Does at build time what would otherwise slow down each short run of rlock.

mod link;
mod scripts;

fn main() -> std::io::Result<()> {
    scripts::assemble()?;
    link::unwinder();
    link::fixed_address();
    link::short_runs();
    Ok(())
}

/// A variable that Cargo sets; empty if it does not.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
