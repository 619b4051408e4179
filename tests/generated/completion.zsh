# The names of held locks, from the server that the words before name.
_rlock_names() {
    local -a names server
    local option
    for option in $_rlock_server; do
        # _arguments has escaped the colons.
        (( ! $+opt_args[$option] )) || server+=($option "${(Q)${opt_args[$option]//\\:/:}}")
    done
    names=(${(f)"$(timeout 1 rlock inspect --quiet --names --io-timeout 500ms $server \
        2>/dev/null </dev/null)"})
    compadd "$@" -a names
}

# Completes a command and its arguments as if rlock were not before them.
_rlock_command() {
    local after=$(( $#words - CURRENT ))
    # The arguments of rlock without its options. The first is the name of the lock.
    words=("${(@)line[2,-1]}")
    (( CURRENT = $#words - after ))
    _normal
}

_rlock "$@"
