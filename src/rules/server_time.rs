//! Time on the clock of a server.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::millis;

/// A time on the server's clock, in milliseconds since the epoch. Only for display: no decision
/// depends on it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ServerTime(pub u64);

impl ServerTime {
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for ServerTime {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(millis(rhs)))
    }
}

impl Sub<Duration> for ServerTime {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(millis(rhs)))
    }
}
