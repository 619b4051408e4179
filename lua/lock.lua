-- What a lock consists of: its keys, its fields, and the limits that apply everywhere.
--
-- Reads:   KEYS, ARGV[1], ARGV[2]
-- Changes: nothing
--
-- KEYS[1] guard    string  the token of the live hold with the latest deadline. Its TTL ends at that
--                          deadline, so the key exists exactly while the lock is held
-- KEYS[2] holds    zset    token -> deadline, in server milliseconds
-- KEYS[3] state    hash    fields of the lock:
--   'guard'          the guard as last written
--   'mode'           mode of the holds as a whole
--   'fence'          the last fencing token granted
--   'generation'     random; it changes when the server loses its data
--   'ticket'         the last number assigned in the queue
--   'nominated'      waiters of several servers that may have the lock now; see admission.lua
--   'head'           the waiter that knows it is the head of the queue
--   'newest'         the last request with --supersede: its arrival, a space, its token and its client
--   'revoked_up_to'  holds with a fence up to this one are revoked; 'revoked_up_to:how',
--                    'revoked_up_to:by' and 'revoked_up_to:at' record how, by whom and when
--   'skipped'        the clients that were turned away; see history.lua
--   'slots'          the numbers that are taken; see slots.lua
--   'details:<TOKEN>'  of each hold or waiter; see details.lua
-- KEYS[4] queue    zset    waiting token -> ticket, first come first served; see queue.lua for --next
-- KEYS[5] mail     list    wakes the waiter named by ARGV[2]; see queue.lua for its name
-- KEYS[6] history  list    how the last holds ended, the latest last; see history.lua
-- KEYS[7] tombstones  zset  token -> until when a request with it is rejected, because it was
--                          released or withdrawn. They outlive the state of an idle lock
--
-- ARGV[1] database  a failed SELECT must stop the script before it writes anything. A SELECT sent
--                   ahead of the script in the same flight would not stop it
-- ARGV[2] token     of the hold or waiter that calls; '' if none
--
-- All times are the server's, in milliseconds; a fence counts microseconds. int() writes whole
-- numbers, because Lua's own notation turns into 1e+14 for large ones.
--
-- A record is a text of items, each of which is a line break, a name, a space and a value. A reader
-- skips names that it does not know, and takes a missing item for ''. What the first item of a record
-- is called tells what it is a record of. Two records one after the other are a record of both.
--
-- No call runs for longer than a few milliseconds, whatever happened before it. Later calls finish
-- its work, and until then no request is admitted.

if ARGV[1] ~= '0' then redis.call('SELECT', ARGV[1]) end

local GUARD, HOLDS, STATE, QUEUE, MAIL, HISTORY, TOMBSTONES = unpack(KEYS)
local TOKEN = ARGV[2]

-- How long a granted lock waits for the waiter to claim it, and a nominated waiter stays nominated.
local CLAIM_WINDOW = 2000
-- How long the fence and the history outlive their last use.
local DAY = 24 * 3600 * 1000
-- No lease and no tombstone lasts this long: a TTL is a week at most.
local TOO_LONG = 14 * DAY
-- How many holds or waiters one call drops or admits at most.
local BATCH = 100
-- How many holders and waiters one reply lists at most.
local MAX_LISTED = 100
-- Longest detail that a reply shows, in bytes.
local MAX_DETAIL = 4000
-- Longest record that a reply shows, in bytes.
local MAX_RECORD = 6 * MAX_DETAIL

local function int(number) return string.format('%d', number) end
