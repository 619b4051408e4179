-- History: how the last holds ended, and who was turned away since the last one began.
--
-- Reads:   history, holds, state; lock.written, lock.revoked_up_to, now
-- Changes: history; in the state 'skipped'; lock.skipped
--
-- An entry is a record of these items, and of those that described() adds:
--   ended    'released', 'lost', 'expired', or how the hold was revoked: 'revoked', 'deleted' or
--            'overwritten'
--   at       when
--   outcome  of the command, if reported
--   by       who revoked it

-- How many holds the history keeps.
local HISTORY_LENGTH = 16

-- The value of an item of a record.
local function item(record, name)
  return string.match(record, '\n' .. name .. ' ([^\n]*)') or ''
end

-- The entry for a hold that ends with this outcome of its command; nil if there is none to add. `by` is
-- given, instead of an outcome, if the caller of the script ends it. A hold that was revoked before
-- ended then, and not as `how` says.
local function history_entry(token, how, at, outcome, by)
  local details = details_of(token)
  -- Nobody had the hold of a closed lock.
  if is_of_closed_lock(details) then return nil end
  if not by then
    -- Its release is on record, or its details are lost.
    if details.status == 'cooling' or details.fence == '' then return nil end
    by = ''
    if hold_state(details) == 'revoked' then how, by = revocation(details.status) end
  end
  return '\nended ' .. how .. '\nat ' .. int(at) .. '\noutcome ' .. outcome .. '\nby ' .. by
    .. described(token, details)
end

-- Of a history of this length, the oldest entry of a hold that ended well. If there is none but the
-- latest entry, which always stays, the oldest of all.
local function least_useful(length)
  for i = 0, length - 2 do
    local entry = redis.call('LRANGE', HISTORY, i, i)[1]
    local outcome = item(entry, 'outcome')
    if item(entry, 'ended') == 'released' and (outcome == '' or outcome == 'exit 0') then return entry end
  end
  return redis.call('LRANGE', HISTORY, 0, 0)[1]
end

-- Never the first write of a script, because it takes memory; and only once the holds are dropped, so
-- that a failure to record does not keep the lock from moving on.
local function record(entries)
  if #entries == 0 then return end
  local length = redis.pcall('RPUSH', HISTORY, unpack(entries))
  if is_wrong_type(length) then return end
  if type(length) == 'table' then return redis.call('RPUSH', HISTORY, unpack(entries)) end
  -- Only another client can have added more than this.
  if length > 2 * HISTORY_LENGTH then redis.call('LTRIM', HISTORY, -2 * HISTORY_LENGTH, -1) end
  for number = math.min(length, 2 * HISTORY_LENGTH), HISTORY_LENGTH + 1, -1 do
    redis.call('LREM', HISTORY, 1, least_useful(number))
  end
  redis.call('PEXPIREAT', HISTORY, int(now + DAY))
end

-- Counts a client that is turned away because the lock is busy: once, even if its request arrives
-- again. The field is a record of 'skipped', how many since the last hold began, and of the last of
-- them: when it was ('at'), its id and its client. A failure to record does not change the reply.
local function record_skip(about)
  local before, id = lock.skipped or '', id_of(TOKEN)
  if item(before, 'id') == id then return end
  local count = math.min(tonumber(item(before, 'skipped')) or 0, 2 ^ 52) + 1
  lock.skipped = '\nskipped ' .. int(count) .. '\nat ' .. int(now) .. '\nid ' .. id
    .. string.sub(about, 1, MAX_DETAIL)
  redis.pcall('HSET', STATE, 'skipped', lock.skipped)
  redis.pcall('PEXPIREAT', STATE, state_expiry())
end

-- The last entries, the latest last, at most this many if given; and whether they can be read.
local function last_entries(at_most)
  local from = at_most and -at_most or 0
  local entries = redis.pcall('LRANGE', HISTORY, from, -1)
  if is_wrong_type(entries) then return {}, false end
  return entries.err and redis.call('LRANGE', HISTORY, from, -1) or entries, true
end

-- How, when and by whom a token's hold ended, if it is in the history. If not, the fourth result is
-- whether the history is complete.
local function recorded(token)
  local id, entries, readable = id_of(token), last_entries()
  for i = #entries, 1, -1 do
    local entry = entries[i]
    -- Few entries contain the ID at all, and only their items are worth looking for.
    if string.find(entry, id, 1, true) and item(entry, 'id') == id then
      return item(entry, 'ended'), tonumber(item(entry, 'at')) or 0, item(entry, 'by')
    end
  end
  return nil, nil, nil, readable and #entries < HISTORY_LENGTH
end

-- Adds the entries for the last of these expired holds, pairs of token and deadline, the earliest
-- first, to `entries`, if any.
local function expired_entries(expired, entries)
  entries = entries or {}
  for i = math.max(1, #expired - 2 * HISTORY_LENGTH + 1), #expired, 2 do
    entries[#entries + 1] = history_entry(expired[i], 'expired', expired[i + 1], '')
  end
  return entries
end

-- How the last holds ended, at most this many, and those that expired since the last write.
local function history(at_most)
  local entries = last_entries(at_most)
  local number = lock.written and redis.call('ZCOUNT', HOLDS, '-inf', '(' .. int(now)) or 0
  if number == 0 then return entries end
  local expired = redis.call('ZRANGE', HOLDS, math.max(number - HISTORY_LENGTH, 0), number - 1,
    'WITHSCORES')
  return expired_entries(expired, entries)
end
