
# The names of held locks, from the server in RLOCK_URL; none if it does not answer soon. COMP_LINE
# contains the whole word, which bash splits at each colon. Names are quoted, because any user may have
# chosen them.
_rlock_names() {
    local line="${COMP_LINE:0:COMP_POINT}"
    local word="${line##* }" before=""
    [[ "$COMP_WORDBREAKS" == *:* && "$word" == *:* ]] && before="${word%"${word##*:}"}"
    local names
    names=$("$1" inspect --quiet --names --io-timeout 500ms 2>/dev/null) || return 0
    local name
    while IFS= read -r name; do
        if [[ -n "$name" && "$name" == "$word"* ]]; then
            printf -v name %q "${name#"$before"}"
            COMPREPLY+=("$name")
        fi
    done <<<"$names"
}

# Whether the next word is the name: not after an option that takes a value, and not after a name.
_rlock_wants_name() {
    local line="${COMP_LINE:0:COMP_POINT}" word previous="" names=0
    local -a words
    read -ra words <<<"$line"
    [[ "$line" == *" " ]] || unset "words[-1]"
    for word in "${words[@]:2}"; do
        case "$previous" in
            --url | --prefix | --io-timeout | --password-file | --tls-ca | --tls-cert | --tls-key | -t | --ttl) ;;
            *) [[ "$word" == -* ]] || names=$((names + 1)) ;;
        esac
        previous="$word"
    done
    case "$previous" in
        --url | --prefix | --io-timeout | --password-file | --tls-ca | --tls-cert | --tls-key | -t | --ttl) return 1 ;;
    esac
    ((names == 0))
}

_rlock_and_names() {
    _rlock "$@"
    case "${COMP_WORDS[1]}" in
        inspect | release | renew)
            if [[ "$2" != -* ]] && _rlock_wants_name; then
                COMPREPLY=()
                _rlock_names "$1"
            fi
            ;;
    esac
}

complete -F _rlock_and_names -o bashdefault -o default rlock
