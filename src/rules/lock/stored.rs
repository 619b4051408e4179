//! What stores keep as text: in the keys of a server, and for serde in the files of `local:`.

use serde::{Deserialize, Deserializer, Serializer};

pub trait Stored {
    fn to_stored(&self) -> String;

    /// Parses what another client wrote, which may have another version or be hostile.
    fn from_stored(text: &str) -> Self;
}

pub(crate) fn serialize<S: Serializer>(it: &impl Stored, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&it.to_stored())
}

pub(crate) fn deserialize<'de, T: Stored, D: Deserializer<'de>>(text: D) -> Result<T, D::Error> {
    String::deserialize(text).map(|text| T::from_stored(&text))
}
