"""Writers of completion scripts for bash, zsh and fish, from the tree of a command line.

A script holds all words that it offers, so that no Python is started when Tab is pressed. All texts in it are quoted,
so that a shell never runs a help text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from .completion_tree import Branch, Option, Value

HEAD = "# Completion of `{name}` for {shell}, made by `{name} completion {shell}`. Do not edit it; make it again."

_ZSH_SPECIAL = re.compile(r"([\\:\[\]])")
_NOT_IN_FUNCTION_NAME = re.compile(r"\W")

BASH_FRAME = """\
{head}
{function}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command= place=0 skip= index
    local words= files= open= assigned=
    # bash splits --option=value into three words.
    if [[ $word == = ]]; then
        word= assigned=1
    elif [[ $before == = ]]; then
        before=${{COMP_WORDS[COMP_CWORD - 2]}} assigned=1
    fi
    for ((index = 1; index < COMP_CWORD; index++)); do
        if [[ ${{COMP_WORDS[index]}} == = ]]; then
            skip=1
        elif [[ -n $skip ]]; then
            skip=
        elif [[ -z $command ]]; then
            case ${{COMP_WORDS[index]}} in
            {commands}) command=${{COMP_WORDS[index]}} ;;
            esac
        else
            case $command,${{COMP_WORDS[index]}} in
            {with_value}) skip=1 ;;
            *,-*) ;;
            *) place=$((place + 1)) ;;
            esac
        fi
    done
    case $command,$before in
{values}
    *)
        if [[ -n $assigned ]]; then
            return 0
        elif [[ $word == -* ]]; then
            case $command in
{options}
            esac
        else
            case $command,$place in
{places}
            esac
        fi
        ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    [[ -n $files ]] && compopt -o default 2>/dev/null # readline's own completion quotes names
    [[ -n $open ]] && compopt -o nospace 2>/dev/null
    return 0
}}
complete -F {function} {name}
"""

ZSH_FRAME = """\
#compdef {name}
{head}
{function}() {{
    local curcontext=$curcontext state line
    local -a commands
    typeset -A opt_args
    _arguments -C \\
{options}
        '1: :->command' \\
        '*:: :->argument'
    case $state in
    command)
        commands=(
{commands}
        )
        _describe -t commands command commands
        ;;
    argument)
        case $words[1] in
{branches}
        esac
        ;;
    esac
}}
# zsh calls a file of $fpath; a sourced script must be registered.
if [[ $funcstack[1] == {function} ]]; then
    {function} "$@"
else
    compdef {function} {name}
fi
"""


def bash_script(tree: Branch) -> str:
    """Return the script for bash, for `source <(… completion bash)`."""
    branches = [(branch.name, branch) for branch in tree.branches]
    everywhere = [("", tree), *branches]
    values = [
        (f"{name},{flag}", option.value)
        for name, branch in everywhere
        for option in branch.options
        for flag in option.flags
        if option.value is not None
    ]
    options = [
        (name or "''", "words=" + _quoted(" ".join(flag for option in branch.options for flag in option.flags)))
        for name, branch in everywhere
    ]
    places = [(",0", "words=" + _quoted(" ".join(branch.name for branch in tree.branches)))]
    for name, branch in branches:
        for number, value in enumerate(branch.places):
            last = branch.rest and number == len(branch.places) - 1
            places.append((f"{name},{'*' if last else number}", _bash_value(value)))
    return BASH_FRAME.format(
        head=HEAD.format(name=tree.name, shell="bash"),
        name=tree.name,
        function=_function(tree),
        commands=" | ".join(name for name, _ in branches),
        with_value=" | ".join(key for key, _ in values),
        values=_cases([(key, _bash_value(value)) for key, value in values], 4),
        options=_cases(options, 12),
        places=_cases(places, 12),
    )


def _bash_value(value: Value) -> str:
    if value.words:
        return "words=" + _quoted(" ".join(value.words)) + (" open=1" if value.unfinished else "")
    return "files=1" if value.files else ":"


def _cases(cases: Sequence[tuple[str, str]], depth: int) -> str:
    """Return the branches of a `case`. Patterns with the same action share a branch."""
    patterns: dict[str, list[str]] = {}
    for pattern, action in cases:
        patterns.setdefault(action, []).append(pattern)
    indent = " " * depth
    return "\n".join(f"{indent}{' | '.join(found)}) {action} ;;" for action, found in patterns.items())


def zsh_script(tree: Branch) -> str:
    """Return the script for zsh: a file `_manystream` in a folder of `$fpath`, or `source <(… completion zsh)`."""
    commands = ["            " + _quoted(f"{_zsh_text(branch.name)}:{branch.help}") for branch in tree.branches]
    branches: list[str] = []
    for branch in tree.branches:
        lines = ["_arguments -S", *map(_zsh_option, branch.options), *_zsh_places(branch)]
        joined = " \\\n                ".join(lines)
        branches.append(f"        {branch.name})\n            {joined}\n            ;;")
    return ZSH_FRAME.format(
        head=HEAD.format(name=tree.name, shell="zsh"),
        name=tree.name,
        function=_function(tree),
        options="\n".join(f"        {_zsh_option(option)} \\" for option in tree.options),
        commands="\n".join(commands),
        branches="\n".join(branches),
    )


def _zsh_option(option: Option) -> str:
    help = f"[{_zsh_text(option.help)}]"
    value = f":{_zsh_value(option.value)}" if option.value is not None else ""
    if option.repeated:
        return " ".join(_quoted(f"*{flag}{help}{value}") for flag in option.flags)
    if len(option.flags) == 1:
        return _quoted(f"{option.flags[0]}{help}{value}")
    others = _quoted(f"({' '.join(option.flags)})")
    return f"{others}{{{','.join(option.flags)}}}{_quoted(help + value)}"


def _zsh_places(branch: Branch) -> list[str]:
    places: list[str] = []
    for number, value in enumerate(branch.places, 1):
        last = branch.rest and number == len(branch.places)
        places.append(_quoted(f"{'*' if last else number}:{_zsh_value(value)}"))
    return places


def _zsh_value(value: Value) -> str:
    name = _zsh_text(value.name)
    if value.unfinished:
        return f"{name}:compadd -S '' - {' '.join(value.words)}"
    if value.words:
        return f"{name}:({' '.join(value.words)})"
    return f"{name}:_files" if value.files else f"{name}: "


def _zsh_text(text: str) -> str:
    """Quote text inside a specification of zsh's `_arguments`."""
    return _ZSH_SPECIAL.sub(r"\\\1", text)


def fish_script(tree: Branch) -> str:
    """Return the script for fish: a file in `~/.config/fish/completions`, or `… completion fish | source`."""
    lines = [HEAD.format(name=tree.name, shell="fish"), f"complete -c {tree.name} -f"]
    for option in tree.options:
        lines.append(f"complete -c {tree.name} -n __fish_use_subcommand{_fish_option(option)}")
    for branch in tree.branches:
        help = _fish_quoted(branch.help)
        lines.append(f"complete -c {tree.name} -n __fish_use_subcommand -a {branch.name} -d {help}")
    for branch in tree.branches:
        begin = f"complete -c {tree.name} -n '__fish_seen_subcommand_from {branch.name}'"
        lines += [begin + _fish_option(option) for option in branch.options]
        for value in branch.places:
            if value.words:
                lines.append(f"{begin} -a {_fish_quoted(' '.join(value.words))} -d {_fish_quoted(value.name)}")
            elif value.files:
                lines.append(f"{begin} -F")
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    flags = "".join(f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}" for flag in option.flags)
    value = ""
    if option.value is not None:
        words = f" -a {_fish_quoted(' '.join(option.value.words))}" if option.value.words else ""
        value = " -r -F" if option.value.files else f" -x{words}"
    return f"{flags}{value} -d {_fish_quoted(option.help)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quoted(text: str) -> str:
    """Quote text as one word for bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _function(tree: Branch) -> str:
    return "_" + _NOT_IN_FUNCTION_NAME.sub("_", tree.name)


SCRIPTS: dict[str, Callable[[Branch], str]] = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
"""Shell → the function that makes its script."""
