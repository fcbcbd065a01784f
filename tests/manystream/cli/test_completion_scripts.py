"""The completion scripts for a small command line, as a whole: also for shells that are not installed here."""

from __future__ import annotations

import argparse

import pytest

from manystream.cli import main
from manystream.cli.completion_scripts import SCRIPTS
from manystream.cli.completion_tree import Branch, Option, Value, read_parser

BASH = r"""
# Completion of `a-tool` for bash, made by `a-tool completion bash`. Do not edit it; make it again.
_a_tool() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= place=0 skip= index
    local words= files= open= assigned=
    # bash splits --option=value into three words.
    if [[ $word == = ]]; then
        word= assigned=1
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]} assigned=1
    fi
    for ((index = 1; index < COMP_CWORD; index++)); do
        if [[ ${COMP_WORDS[index]} == = ]]; then
            skip=1
        elif [[ -n $skip ]]; then
            skip=
        elif [[ -z $command ]]; then
            case ${COMP_WORDS[index]} in
            go | stop) command=${COMP_WORDS[index]} ;;
            esac
        else
            case $command,${COMP_WORDS[index]} in
            go,-o | go,--output | go,--speed | go,-n | go,--name | go,--knob | go,--count) skip=1 ;;
            *,-*) ;;
            *) place=$((place + 1)) ;;
            esac
        fi
    done
    case $command,$before in
    go,-o | go,--output) files=1 ;;
    go,--speed) words='slow fast' ;;
    go,-n | go,--name | go,--count) : ;;
    go,--knob) words='rate= size=' open=1 ;;
    *)
        if [[ -n $assigned ]]; then
            return 0
        elif [[ $word == -* ]]; then
            case $command in
            '') words='-h --help --version' ;;
            go) words='-o --output --speed -n --name --knob --count -v' ;;
            stop) words='' ;;
            esac
        else
            case $command,$place in
            ,0) words='go stop' ;;
            go,0) files=1 ;;
            go,1) words='left right' ;;
            go,*) words='rate= size=' open=1 ;;
            stop,0) : ;;
            esac
        fi
        ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    [[ -n $files ]] && compopt -o default 2>/dev/null # readline's own completion quotes names
    [[ -n $open ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -F _a_tool a-tool
"""
ZSH = r"""
#compdef a-tool
# Completion of `a-tool` for zsh, made by `a-tool completion zsh`. Do not edit it; make it again.
_a_tool() {
    local curcontext=$curcontext state line
    local -a commands
    typeset -A opt_args
    _arguments -C \
        '(-h --help)'{-h,--help}'[show this help message and exit]' \
        '--version[print the version]' \
        '1: :->command' \
        '*:: :->argument'
    case $state in
    command)
        commands=(
            'go:it'\''s 100% [x]: \ a walk'
            'stop:'
        )
        _describe -t commands command commands
        ;;
    argument)
        case $words[1] in
        go)
            _arguments -S \
                '(-o --output)'{-o,--output}'[the file'\''s name]:FILE:_files' \
                '--speed[how fast]:speed:(slow fast)' \
                '*-n[a name]:NAME: ' '*--name[a name]:NAME: ' \
                '--knob[a knob]:KNOB:compadd -S '\'''\'' - rate= size=' \
                '--count[]:count: ' \
                '-v[say more]' \
                '1:PATH:_files' \
                '2:how:(left right)' \
                '*:KNOB:compadd -S '\'''\'' - rate= size='
            ;;
        stop)
            _arguments -S \
                '1:when: '
            ;;
        esac
        ;;
    esac
}
# zsh calls a file of $fpath; a sourced script must be registered.
if [[ $funcstack[1] == _a_tool ]]; then
    _a_tool "$@"
else
    compdef _a_tool a-tool
fi
"""
FISH = r"""
# Completion of `a-tool` for fish, made by `a-tool completion fish`. Do not edit it; make it again.
complete -c a-tool -f
complete -c a-tool -n __fish_use_subcommand -s h -l help -d 'show this help message and exit'
complete -c a-tool -n __fish_use_subcommand -l version -d 'print the version'
complete -c a-tool -n __fish_use_subcommand -a go -d 'it\'s 100% [x]: \\ a walk'
complete -c a-tool -n __fish_use_subcommand -a stop -d ''
complete -c a-tool -n '__fish_seen_subcommand_from go' -s o -l output -r -F -d 'the file\'s name'
complete -c a-tool -n '__fish_seen_subcommand_from go' -l speed -x -a 'slow fast' -d 'how fast'
complete -c a-tool -n '__fish_seen_subcommand_from go' -s n -l name -x -d 'a name'
complete -c a-tool -n '__fish_seen_subcommand_from go' -l knob -x -a 'rate= size=' -d 'a knob'
complete -c a-tool -n '__fish_seen_subcommand_from go' -l count -x -d ''
complete -c a-tool -n '__fish_seen_subcommand_from go' -s v -d 'say more'
complete -c a-tool -n '__fish_seen_subcommand_from go' -F
complete -c a-tool -n '__fish_seen_subcommand_from go' -a 'left right' -d 'how'
complete -c a-tool -n '__fish_seen_subcommand_from go' -a 'rate= size=' -d 'KNOB'
"""
SHELLS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
KNOBS = Value("KNOB", ("rate=", "size="), unfinished=True)
TREE = Branch(
    "a-tool",
    "a tool",
    options=[
        Option(("-h", "--help"), "show this help message and exit", None, repeated=False),
        Option(("--version",), "print the version", None, repeated=False),
    ],
    branches=[
        Branch(
            "go",
            "it's 100% [x]: \\ a walk",
            options=[
                Option(("-o", "--output"), "the file's name", Value("FILE", files=True), repeated=False),
                Option(("--speed",), "how fast", Value("speed", ("slow", "fast")), repeated=False),
                Option(("-n", "--name"), "a name", Value("NAME"), repeated=True),
                Option(("--knob",), "a knob", KNOBS, repeated=False),
                Option(("--count",), "", Value("count"), repeated=False),
                Option(("-v",), "say more", None, repeated=False),
            ],
            places=[Value("PATH", files=True), Value("how", ("left", "right")), KNOBS],
            rest=True,
        ),
        Branch("stop", "", places=[Value("when")]),
    ],
)


def small_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="a-tool")
    parser.add_argument("--version", action="version", help="print the version")
    parser.add_argument("--secret", help=argparse.SUPPRESS)
    commands = parser.add_subparsers()
    go = commands.add_parser("go", help="it's 100%% [x]: \\ a\n  walk", add_help=False)
    go.add_argument("-o", "--output", metavar="FILE", help="the file's name")
    go.add_argument("--speed", choices=["slow", "fast"], help="how fast")
    go.add_argument("-n", "--name", action="append", metavar="NAME", help="a name")
    go.add_argument("--knob", metavar="KNOB", help="a knob")
    go.add_argument("--count", type=int)
    go.add_argument("-v", action="store_true", help="say more")
    go.add_argument("where", metavar="PATH", help="where")
    go.add_argument("how", choices=["left", "right"])
    go.add_argument("knobs", nargs="*", metavar="KNOB")
    stop = commands.add_parser("stop", add_help=False)
    stop.add_argument("when")
    return parser


def test_the_tree_of_a_parser_has_all_options_in_order() -> None:
    assert read_parser(small_parser(), {"KNOB": lambda: ["rate=", "size="]}, "a-tool", "a tool") == TREE


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_whole_script_of_a_shell(shell: str) -> None:
    assert SCRIPTS[shell](TREE) == SHELLS[shell].removeprefix("\n")


@pytest.mark.parametrize(("nargs", "rest"), [(None, False), ("?", False), ("*", True), ("+", True)])
def test_the_last_argument_may_be_repeated(nargs: str | None, rest: bool) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first")
    parser.add_argument("second", nargs=nargs)
    assert read_parser(parser, {}, "m").rest is rest


def test_words_are_values_unless_all_are_unfinished() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("knob", metavar="KNOB")
    assert read_parser(parser, {"KNOB": lambda: ["rate=", "all"]}, "m").places == [Value("KNOB", ("rate=", "all"))]
    assert read_parser(parser, {"KNOB": list}, "m").places == [Value("KNOB")]


def test_a_script_ends_with_one_line_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("'\n")
    assert not out.endswith("\n\n")
