//! Runs scripts as Redis does: in its sandbox, and with its conversions.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use mlua::debug::Debug;
use mlua::{
    Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, VmState,
};
use redis::Value;
use sha1_smol::Sha1;

use super::redis::Redis;

/// A server in the process of the test.
pub(crate) struct Sandbox {
    lua: Lua,
    /// By their hashes.
    scripts: HashMap<String, Script>,
    pub(crate) redis: Rc<RefCell<Redis>>,
    /// The hash of the script and the number of each line that was reached, if a test asks for them.
    reached: Rc<RefCell<HashSet<(String, usize)>>>,
    /// How many times 10,000 steps the present history has taken, if that is limited.
    pub(super) steps: Rc<Cell<u32>>,
    /// A fault in the scripts.
    pub(crate) mutation: Option<Mutation>,
}

/// Replaces a line of a script by another one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mutation {
    /// A line that the script has; any if it is empty.
    pub(crate) within: String,
    /// The line before; any if it is empty.
    pub(crate) after: String,
    pub(crate) old: String,
    pub(crate) new: String,
}

struct Script {
    source: String,
    function: Function,
}

/// Makes every use of an undefined global variable an error, as Redis does.
const STRICT: &str = "
setmetatable(_G, {
  __index = function(_, name) error('nonexistent global variable ' .. tostring(name), 2) end,
  __newindex = function(_, name) error('global variable ' .. tostring(name), 2) end,
})";

impl Sandbox {
    pub(crate) fn new() -> Self {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default()).unwrap();
        let redis: Rc<RefCell<Redis>> = Rc::default();
        let globals = lua.globals();
        globals.set("redis", commands(&lua, &redis).unwrap()).unwrap();
        globals.set("bit", bits(&lua).unwrap()).unwrap();
        lua.load(STRICT).exec().unwrap();
        Self {
            lua,
            scripts: HashMap::new(),
            redis,
            reached: Rc::default(),
            steps: Rc::default(),
            mutation: None,
        }
    }

    pub(crate) fn has(&self, hash: &str) -> bool {
        self.scripts.contains_key(hash)
    }

    /// Compiles a script. A fault that Lua refuses is none: it is left out, so nothing finds it.
    pub(crate) fn load(&mut self, hash: &str, source: &str) {
        let compiled =
            |source: &str| self.lua.load(source).set_name(format!("={hash}")).into_function();
        let mutated = self.mutation.as_ref().map(|mutation| mutation.of(source));
        let mutated = mutated.and_then(|source| Some((compiled(&source).ok()?, source)));
        let (function, source) =
            mutated.unwrap_or_else(|| (compiled(source).unwrap(), source.to_owned()));
        self.scripts.insert(hash.to_owned(), Script { source, function });
    }

    /// Runs a script that was loaded. The first error ends it, as on a server.
    pub(crate) fn run(
        &self,
        hash: &str,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<Value, String> {
        let (script, globals) = (&self.scripts[hash].function, self.lua.globals());
        for (name, words) in [("KEYS", keys), ("ARGV", arguments)] {
            let words = words.iter().map(|word| self.lua.create_string(word).unwrap());
            globals.raw_set(name, self.lua.create_sequence_from(words).unwrap()).unwrap();
        }
        self.redis.borrow_mut().begin(0);
        let reply = script.call::<mlua::Value>(()).map_err(|error| text_of(&error))?;
        replied(reply)
    }

    /// From now on, notes the lines that are reached.
    pub(crate) fn note_lines(&self) {
        let reached = Rc::clone(&self.reached);
        let note = move |_: &Lua, debug: &Debug<'_>| {
            if let (Some(line), Some(source)) = (debug.current_line(), debug.source().source) {
                reached.borrow_mut().insert((source[1..].to_owned(), line));
            }
            Ok(VmState::Continue)
        };
        self.lua.set_hook(HookTriggers::EVERY_LINE, note).unwrap();
    }

    /// The lines with code that no script has reached since then. Scripts share lines: two are the
    /// same if the lines before them are.
    pub(crate) fn lines_not_reached(&self) -> Vec<String> {
        let (mut lines, reached) = (BTreeMap::new(), self.reached.borrow());
        for (hash, Script { source, .. }) in &self.scripts {
            let source: Vec<_> = source.lines().collect();
            for (before, pair) in (1..).zip(source.windows(2)) {
                let is_reached = reached.contains(&(hash.clone(), before + 1));
                *lines.entry(pair.to_vec()).or_insert(false) |= is_reached || !has_code(pair[1]);
            }
        }
        let missed = lines.into_iter().filter(|(_, is_reached)| !is_reached);
        missed.map(|(pair, _)| pair[1].to_owned()).collect()
    }

    /// From now on, a history that takes more than ten million steps fails, because a script may never
    /// end, or may ask for another call forever.
    pub(crate) fn limit_steps(&self) {
        let steps = Rc::clone(&self.steps);
        let limit = move |_: &Lua, _: &Debug<'_>| {
            steps.set(steps.get() + 1);
            match steps.get() {
                ..1_000 => Ok(VmState::Continue),
                _ => Err(mlua::Error::runtime("too many steps")),
            }
        };
        let triggers = HookTriggers::new().every_nth_instruction(10_000);
        self.lua.set_hook(triggers, limit).unwrap();
    }
}

impl Mutation {
    /// The script with this fault.
    fn of(&self, source: &str) -> String {
        let is_any = |wanted: &str, line: &str| wanted.is_empty() || wanted == line;
        let is_meant = source.lines().any(|line| is_any(&self.within, line));
        let mut before = "";
        let mut line = |line| {
            let is_hit = is_meant && self.old == line && is_any(&self.after, before);
            before = line;
            if is_hit { &self.new } else { line }
        };
        source.lines().map(&mut line).collect::<Vec<_>>().join("\n")
    }
}

/// Whether a line is more than the beginning or the end of something. A variable that begins as nil
/// needs no code.
fn has_code(line: &str) -> bool {
    let begins_function = line.ends_with("(function()")
        || line.starts_with("local function ") && !line.ends_with(" end");
    let declares = line.starts_with("local ") && line.ends_with(" nil");
    !begins_function && !declares && !["else", "end", "end)()", "while true do"].contains(&line)
}

/// The table `redis`.
fn commands(lua: &Lua, redis: &Rc<RefCell<Redis>>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, raises) in [("call", true), ("pcall", false)] {
        let redis = Rc::clone(redis);
        let command = lua.create_function(move |lua, arguments: MultiValue| {
            let words: Vec<Vec<u8>> = arguments
                .iter()
                .map(word)
                .collect::<Option<_>>()
                .ok_or_else(|| mlua::Error::runtime("arguments must be strings or integers"))?;
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            match redis.borrow_mut().call(&words) {
                Ok(value) => converted(lua, value),
                Err(error) if raises => Err(mlua::Error::runtime(error)),
                Err(error) => {
                    let table = lua.create_table()?;
                    table.set("err", error)?;
                    Ok(mlua::Value::Table(table))
                }
            }
        })?;
        table.set(name, command)?;
    }
    let sha1hex = |_: &Lua, text: LuaString| Ok(Sha1::from(&*text.as_bytes()).digest().to_string());
    table.set("sha1hex", lua.create_function(sha1hex)?)?;
    Ok(table)
}

/// The table `bit`, for numbers of 32 bits.
fn bits(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let bit = |number: f64| number as i64 as i32;
    let band = move |_: &Lua, (one, other): (f64, f64)| Ok(bit(one) & bit(other));
    let bor = move |_: &Lua, (one, other): (f64, f64)| Ok(bit(one) | bit(other));
    table.set("band", lua.create_function(band)?)?;
    table.set("bor", lua.create_function(bor)?)?;
    Ok(table)
}

/// A word of a command. No script passes a fraction, so that this need not write one as Redis does.
fn word(value: &mlua::Value) -> Option<Vec<u8>> {
    match value {
        mlua::Value::String(text) => Some(text.as_bytes().to_vec()),
        mlua::Value::Integer(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

/// The reply to a command, as a script sees it.
fn converted(lua: &Lua, value: Value) -> mlua::Result<mlua::Value> {
    Ok(match value {
        Value::Nil => mlua::Value::Boolean(false),
        Value::Int(number) => mlua::Value::Number(number as f64),
        Value::BulkString(text) => mlua::Value::String(lua.create_string(text)?),
        Value::Array(values) => {
            let values = values.into_iter().map(|value| converted(lua, value));
            let values: Vec<_> = values.collect::<mlua::Result<_>>()?;
            mlua::Value::Table(lua.create_sequence_from(values)?)
        }
        // A status, at which no script looks.
        _ => mlua::Value::Table(lua.create_table()?),
    })
}

/// What a script returns, as a client sees it: numbers without fractions, and arrays up to the
/// first nil.
fn replied(value: mlua::Value) -> Result<Value, String> {
    Ok(match value {
        mlua::Value::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        mlua::Value::Integer(number) => Value::Int(number),
        mlua::Value::Number(number) => Value::Int(number as i64),
        mlua::Value::Boolean(true) => Value::Int(1),
        mlua::Value::Table(table) => {
            if let Ok(Some(error)) = table.raw_get::<Option<String>>("err") {
                return Err(error);
            }
            let values = table.sequence_values().map(|value| replied(value.unwrap()));
            Value::Array(values.collect::<Result<_, _>>()?)
        }
        _ => Value::Nil,
    })
}

fn text_of(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => text_of(cause),
        mlua::Error::RuntimeError(text) => text.clone(),
        error => error.to_string(),
    }
}
