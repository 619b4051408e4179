//! Randomness.

/// Random bytes: 122 bits of them, as in a UUID of version 4.
pub(crate) fn bytes() -> [u8; 16] {
    uuid::Uuid::new_v4().into_bytes()
}
