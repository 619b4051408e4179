//! What can happen in a state.

/// Something that happens, with the client and the server that take part in it, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) action: Action,
    client: u8,
    server: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    Start,
    Execute,
    Read,
    Wake,
    Finish,
    TimeOut,
    ExecuteLate,
    LoseLate,
    Resume,
    Reconnect,
    ToolLeaves,
    Thaw,
    Promote,
    TakeOver,
    /// A fault or what comes from outside, such as a signal, by its letter in a scope.
    Fault(char),
}

/// The letters of a scope for faults, and what each does.
pub(super) type Faults = &'static [(char, &'static str)];

impl Turn {
    pub(super) const TICK: Self = Self { action: Action::Tick, client: 0, server: 0 };

    pub(super) fn new(action: Action, client: usize, server: usize) -> Self {
        Self { action, client: client as u8, server: server as u8 }
    }

    /// Of the actions of a client and a server, those that are possible.
    pub(super) fn possible<const N: usize>(
        client: usize,
        server: usize,
        actions: [(Action, bool); N],
    ) -> impl Iterator<Item = Self> {
        let possible = actions.into_iter().filter(|(_, is_possible)| *is_possible);
        possible.map(move |(action, _)| Self::new(action, client, server))
    }

    pub(super) fn fault(self) -> Option<char> {
        match self.action {
            Action::Fault(letter) => Some(letter),
            _ => None,
        }
    }

    pub(super) fn client(self) -> usize {
        self.client.into()
    }

    pub(super) fn server(self) -> usize {
        self.server.into()
    }
}

impl Action {
    /// What happens, for readers.
    pub(super) fn text(self, faults: Faults) -> &'static str {
        match self {
            Self::Tick => "a second has passed",
            Self::Start => "{client} asks for the lock",
            Self::Execute => "server {server} executes a request of {client}",
            Self::Read => "{client} reads the reply of server {server}",
            Self::Wake => "a message from server {server} wakes {client}",
            Self::Finish => "the command of {client} ends",
            Self::TimeOut => "{client} stops waiting",
            Self::ExecuteLate => "a late request of {client} is executed",
            Self::LoseLate => "late requests of {client} are lost",
            Self::Resume => "{client} resumes",
            Self::Reconnect => "{client} can reach the server again",
            Self::ToolLeaves => "the other tool deletes its key",
            Self::Promote => "the name leads to the master again",
            Self::TakeOver => "the replica that lags takes over",
            Self::Thaw => "server {server} thaws",
            Self::Fault(letter) => {
                let fault = faults.iter().find(|(known, _)| *known == letter);
                fault.map_or("an unknown fault", |(_, text)| text)
            }
        }
    }
}
