"""The step of a Redis sink as a script, and the names of the keys that it keeps.

A script and not MULTI with WATCH: it takes one request where that takes three, and a key that others write cannot make
it begin again and again. A script runs alone, and reaches the append-only file and the replicas as one transaction.

What a script has written is not taken back where a later command of it fails. So it looks first at whatever could fail:
the types of the keys, and what its user may do. That memory is used up, or that the server takes no writes, Redis says
at the first command that writes.

Its one argument is MessagePack, whose strings are bytes:

    [expected, changes, rows, upsert, maxlen, touch]

`expected` and `changes` are lists of [key of a record, its value, or false where there is none]. A row is the list of
fields and values of a stream's entry, or, of the hash at the key with its number, [fields and values to set, fields to
remove]. With `touch` a step that is refused writes something, too, for which the replicas can be waited for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

STEP: Final = """
local asked = cmsgpack.unpack(ARGV[1])
local expected, changes, rows = asked[1], asked[2], asked[3]
local upsert, maxlen, touch = asked[4], asked[5], asked[6]
local records, index, touched = KEYS[1], KEYS[2], KEYS[3]

local function may(...)
    return not redis.acl_check_cmd or redis.acl_check_cmd(...)
end

for at, key in ipairs(KEYS) do
    local due = at == 2 and 'zset' or at == 3 and 'string' or at == 4 and not upsert and 'stream' or 'hash'
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and found ~= due then
        return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. found .. ' and not a ' .. due)
    end
    local allowed
    if at == 2 then
        allowed = may('ZADD', key, '0', 'a') and may('ZREM', key, 'a')
    elseif at == 3 then
        allowed = may('SET', key, '1')
    elseif due == 'stream' then
        allowed = may('XADD', key, '*', 'a', 'b')
    else
        allowed = may('HSET', key, 'a', 'b') and may('HDEL', key, 'a')
    end
    if not allowed then
        return redis.error_reply('NOPERM this user may not write the ' .. due .. ' ' .. key)
    end
end

for _, each in ipairs(expected) do
    if redis.call('HGET', records, each[1]) ~= each[2] then
        if touch then
            redis.call('SET', touched, '1')
        end
        return 0
    end
end
for at, row in ipairs(rows) do
    if upsert then
        redis.call('HSET', KEYS[3 + at], unpack(row[1]))
        if #row[2] > 0 then
            redis.call('HDEL', KEYS[3 + at], unpack(row[2]))
        end
    elseif maxlen then
        redis.call('XADD', KEYS[4], 'MAXLEN', '~', maxlen, '*', unpack(row))
    else
        redis.call('XADD', KEYS[4], '*', unpack(row))
    end
end
for _, each in ipairs(changes) do
    if each[2] then
        redis.call('HSET', records, each[1], each[2])
        redis.call('ZADD', index, '0', each[1])
    else
        redis.call('HDEL', records, each[1])
        redis.call('ZREM', index, each[1])
    end
end
return 1
"""

SCAN: Final = """
local found = redis.call('ZRANGEBYLEX', KEYS[2], '(' .. ARGV[1], '(' .. ARGV[2], 'LIMIT', '0', ARGV[3])
local result = {}
for _, key in ipairs(found) do
    local value = redis.call('HGET', KEYS[1], key)
    if value then
        table.insert(result, key)
        table.insert(result, value)
    end
end
return result
"""

# What the part of a key in braces is, by which Redis Cluster finds the slot: the first braces that are not empty.
_TAG: Final = re.compile(r"[^{]*\{([^}]+)\}")


@dataclass(frozen=True, slots=True)
class OwnKeys:
    """Of the sink for one stream, or one prefix of hashes: in the same slot as that."""

    name: str

    @property
    def has_tag(self) -> bool:
        return _TAG.match(self.name) is not None

    @property
    def fits(self) -> bool:
        """Whether a tag can be named that has the slot of the name; not where there are braces without a tag."""
        return self.has_tag or not set("{}") & set(self.name)

    @property
    def all(self) -> tuple[str, str, str]:
        """The records, their keys in order, and what is written so that there is something to wait for."""
        found = _TAG.match(self.name)
        own = f"clonos:{{{found[1] if found else self.name}}}:{self.name}"
        return f"{own}:records", f"{own}:keys", f"{own}:touched"
