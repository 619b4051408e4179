-- Counters, so that a call need not read all holds. The Rust model reads them all instead, so it
-- has no such file.
--
-- Reads:   lock.revoked_up_to, lock.reinstated, lock.named
-- Changes: lock.reinstated, lock.named; in the state:
--   'reinstated'     how many holds were reinstated and are still on record
--   'named'          present if any owner of a hold was chosen by a user
--   'named:<OWNER>'  '<revoked_up_to> <number>': how many valid holds such an owner has. The count is
--                    void if revoked_up_to has changed since, because that revoked these holds

-- How many valid holds an owner has whose name was chosen by a user.
local function owner_count(owner)
  local number = redis.call('HGET', STATE, 'named:' .. owner) or ''
  local revoked_up_to, holds = string.match(number, '^(%d+) (%d+)$')
  return revoked_up_to == int(lock.revoked_up_to) and tonumber(holds) or 0
end

local function change_owner_count(owner, change)
  local number = owner_count(owner) + change
  lock.named = '1'
  if number <= 0 then return redis.call('HDEL', STATE, 'named:' .. owner) end
  redis.call('HSET', STATE, 'named', '1',
    'named:' .. owner, int(lock.revoked_up_to) .. ' ' .. int(number))
end

-- Takes a hold out of the counters, before it is dropped or released early.
local function uncount(token)
  if lock.reinstated == 0 and not lock.named then return end
  local details = details_of(token)
  if details.status == 'revoked' then
    lock.reinstated = lock.reinstated - 1
    redis.call('HSET', STATE, 'reinstated', int(lock.reinstated))
  elseif details.named ~= '' and hold_state(details) == 'held' then
    change_owner_count(details.owner, -1)
  end
end
