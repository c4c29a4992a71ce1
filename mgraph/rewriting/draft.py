"""``Draft``: a tape while it is being rewritten.

Nodes keep their identity: the root of a match takes over the operator and the children of its replacement,
so that references to it see the new expression. New nodes are recorded at the end of the tape as always.
Finishing the draft moves them before their users and renumbers all nodes. Nodes that no root needs any more
stay on the tape and can be read, but are not roots themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from ..errors import GraphError, MGraphError
from ..leaves import ParamNode
from ..node import Node
from ..places import place
from ..structure import INPUT, Row
from ..tape import Tape
from .patterns import Match
from .rule import Change, Rule, expression


class Draft:
    """A tape, the users of each of its nodes, and the nodes that rewriting made unused."""

    def __init__(self, tape: Tape[Node], roots: Iterable[Node], kept: Iterable[Node] = ()) -> None:
        self.tape = tape
        self.kept = {*kept, *_marked(tape)}
        """Nodes that must not be absorbed: marked ones, and those frozen by hand."""
        self._by_hand = {tape.nodes[i] for i in tape.overrides}
        self.users: dict[Node, dict[Node, None]] = {}
        """The nodes that the roots need, each with its users among these nodes."""
        self._original = len(tape.nodes)
        self._roots = {*roots, *self.kept}
        for node in tape.nodes:
            if node in self._roots:
                self._use(node, None)
                # New nodes equal to a root must not be merged with it: its users stay as they are.
                self._forget_row(node)
        self._alive = tuple(self.users)
        self._lost: dict[Node, str] = {}

    def operators(self) -> list[Node]:
        """The operators that the roots need, children before their users."""
        return [n for n in in_order(n for n in self.tape.nodes if n in self.users) if n.children]

    # -- applying a rule

    def apply(self, rule: Rule, match: Match) -> Change | None:
        """Put the rule's replacement in the place of the match; ``None`` if rule or draft decline.
        ``GraphError`` for an invalid replacement: of another shape, type or trainability, random, of another
        tape, or computed from the node that it replaces.
        """
        root = match.root
        if not self._may_go(rule, match):
            return None
        before = expression(root, match.inner)
        mark, captured = len(self.tape.nodes), len(self.tape.captured)
        new = _replacement(rule, match)
        fresh = self.tape.nodes[mark:]
        if new is None or new is root:
            return None
        if len(self.tape.captured) > captured or (
            self.tape.parent is not None and new._tape is not self.tape.ref
        ):
            # The body of a loop cannot capture more nodes: the children of the loop's node are fixed.
            for key in list(self.tape.captured)[captured:]:
                del self.tape.captured[key]
            return None
        self._check(rule, match, new, fresh)
        for node in fresh:
            node.where = root.where
        if new not in self.users and new.id >= self._original:
            self._become(rule, root, new)
            vars(root).update({k: v for k, v in vars(new).items() if k not in vars(root)})
            if root.children and root not in self._roots:
                self.tape.seen[self.tape.rows[root.id]] = root
        elif not self._stand_aside(rule, match, new):
            return None
        self._lose(rule, match.inner)
        return Change(
            rule.name, place(root.where), before, expression(new, fresh), self.tape.parent is not None
        )

    def _may_go(self, rule: Rule, match: Match) -> bool:
        if any(node in self.kept for node in match.inner):
            return False
        alone = _nodes(match.bindings.get(label) for label in rule.alone)
        return all(n is match.root or (len(self.users[n]) == 1 and n not in self._roots) for n in alone)

    def _check(self, rule: Rule, match: Match, new: Node, fresh: list[Node]) -> None:
        root, problem = match.root, ""
        if new._tape is not self.tape.ref:
            problem = "its replacement belongs to another graph"
        elif new.spec != root.spec:
            problem = f"its replacement is {new.spec!r}"
        elif new.trainable != root.trainable and root not in self._by_hand:
            problem = f"its replacement is {'' if new.trainable else 'not '}trainable"
        elif _needs(new, root, _bound(match)):
            problem = "its replacement is made of the node itself"
        elif any(not n.children and self.tape.rows[n.id][0] is not INPUT for n in fresh):
            problem = "its replacement draws random numbers, which would change those of other nodes"
        if problem:
            flag = "" if root.trainable else "not "
            raise GraphError(
                f"rule {rule.name!r} cannot rewrite this {root.type} node of {root.spec!r}, {flag}trainable, "
                f"made at {place(root.where)}: {problem}"
            )

    def set_operator(self, node: Node, operator: object) -> None:
        """Give ``node`` another operator of its class, for the same children."""
        self._forget_row(node)
        node.operator = operator
        row = self.tape.rows[node.id] = (operator, *(c.id for c in node.children))
        self.tape.seen.setdefault(row, node)

    # -- surgery

    def _become(self, rule: Rule, root: Node, new: Node) -> None:
        """Give ``root`` the operator and the children of ``new``."""
        before = root.children
        self._forget_row(root)
        root.__class__ = new.__class__
        root.operator, root.children = new.operator, new.children
        self.tape.rows[root.id] = self.tape.rows[new.id]
        for child in root.children:
            self._use(child, root)
        self._lose(rule, self._release(set(before) - set(root.children), root))

    def _stand_aside(self, rule: Rule, match: Match, new: Node) -> bool:
        """Make the users of the root use ``new``, an existing node; returns whether that is possible. A root
        that stays becomes a copy of ``new``, if ``new`` loses no use by that."""
        root, below = match.root, new in _bound(match)
        if root not in self._roots:
            self._redirect(rule, root, new)
            self._lose(rule, () if below else [new])
        elif not below and new.children:
            self._become(rule, root, new)
        else:
            return False
        return True

    def _redirect(self, rule: Rule, node: Node, new: Node) -> None:
        """Make the users of ``node`` use ``new``, and merge users that become equal."""
        pending = [(node, new)]
        while pending:
            node, new = pending.pop()
            for user in list(self.users.get(node, ())):
                self._forget_row(user)
                user.children = tuple(new if c is node else c for c in user.children)
                row = self.tape.rows[user.id] = (user.operator, *(c.id for c in user.children))
                self._use(new, user)
                self._lose(rule, self._release([node], user))
                if user in self._roots:
                    continue
                twin = self.tape.seen.setdefault(row, user)
                if twin not in self.users:
                    self.tape.seen[row] = user
                elif twin is not user:
                    self._lose(rule, [twin])
                    pending.append((user, twin))

    def _forget_row(self, node: Node) -> None:
        row = self.tape.rows[node.id]
        if self.tape.seen.get(row) is node:
            del self.tape.seen[row]

    def _use(self, node: Node, user: Node | None) -> None:
        """Note that ``user`` uses ``node`` and, if ``node`` was unused before, that it uses its children."""
        pending = [(node, user)]
        while pending:
            node, user = pending.pop()
            if node not in self.users:
                self.users[node] = {}
                pending += [(child, node) for child in node.children]
            if user is not None:
                self.users[node][user] = None

    def _release(self, nodes: Iterable[Node], user: Node) -> list[Node]:
        """Note that ``user`` no longer uses ``nodes``; returns the nodes that became unused."""
        gone = []
        pending = [(node, user) for node in nodes]
        while pending:
            node, user = pending.pop()
            users = self.users.get(node)
            if users is None:
                continue
            users.pop(user, None)
            if not users and node not in self._roots:
                del self.users[node]
                gone.append(node)
                pending += [(child, node) for child in node.children]
        return gone

    def _lose(self, rule: Rule, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.children:
                self._lost.setdefault(node, rule.name)

    # -- finishing

    def finish(self, readable: bool = True) -> None:
        """Renumber the tape: new nodes come before their users. Unused new nodes are dropped, and so are
        unused old nodes unless they must stay ``readable``.
        """
        tape = self.tape
        overrides = {tape.nodes[i]: flag for i, flag in tape.overrides.items()}
        not_roots = [tape.nodes[i] for i in tape.not_roots]
        wanted = [n for n in tape.nodes if n in self.users or self._stays(n, readable)]
        nodes = in_order(wanted)
        leaf_rows = {n: tape.rows[n.id] for n in nodes if not n.children}
        for i, node in enumerate(nodes):
            node.id = i
        rows: list[Row] = [leaf_rows.get(n) or (n.operator, *(c.id for c in n.children)) for n in nodes]
        tape.nodes[:], tape.rows[:] = nodes, rows
        tape.inputs[:] = [i for i, row in enumerate(rows) if row[0] is INPUT]
        tape.random[:] = [n.id for n in nodes if not n.children and rows[n.id][0] is not INPUT]
        tape.overrides = {node.id: flag for node, flag in overrides.items()}
        tape.rewritings += 1
        absorbed = [n for n in self._alive if n.children and n not in self.users]
        tape.not_roots = {n.id for n in chain(not_roots, absorbed)}
        tape.seen.clear()
        for node, row in zip(nodes, rows, strict=True):
            if node.children and node in self.users and node not in self._lost:
                tape.seen.setdefault(row, node)
        for node, name in self._lost.items():
            vars(node).setdefault("absorbed_by", name)

    def _stays(self, node: Node, readable: bool) -> bool:
        """Whether an unused node stays on the tape."""
        old = node.id < self._original and (readable or not node.children)
        return old or isinstance(node, ParamNode)


def _marked(tape: Tape[Node]) -> set[Node]:
    """Nodes that something other than their users refers to."""
    marked = {n for n in tape.nodes if n.is_checkpoint} | {tape.nodes[i] for i in tape.overrides}
    return marked | {*tape.debugged} | {n for view, _ in tape.observers for n in (view, view.child(0))}


def _replacement(rule: Rule, match: Match) -> Node | None:
    try:
        new = rule.replace(match)
    except MGraphError as e:
        raise type(e)(f"rule {rule.name!r}: {e}") from None
    if new is not None and not isinstance(new, Node):
        raise GraphError(f"rule {rule.name!r} must return a node or None, got {new!r}")
    return new


def _bound(match: Match) -> set[Node]:
    """The nodes of a match that are below its root."""
    return {*match.inner, *_nodes(match.bindings.values())} - {match.root}


def _nodes(values: Iterable[Any]) -> Iterator[Node]:
    """The nodes among the values of labels: a value is a node, something else, or a tuple of these."""
    for value in values:
        yield from (n for n in (value if isinstance(value, tuple) else (value,)) if isinstance(n, Node))


def _needs(node: Node, wanted: Node, known: set[Node]) -> bool:
    """Whether ``wanted`` is ``node`` or below it; it cannot be below the ``known`` nodes."""
    done: set[Node] = set(known)
    pending = [node]
    while pending:
        top = pending.pop()
        if top is wanted:
            return True
        if top not in done:
            done.add(top)
            pending += top.children
    return False


def in_order(nodes: Iterable[Node]) -> list[Node]:
    """``nodes`` and all nodes below them, in the given order, except that children precede their users."""
    done: dict[Node, None] = {}
    for node in nodes:
        pending = [node]
        while pending:
            top = pending[-1]
            missing = [c for c in top.children if c not in done]
            if missing and top not in done:
                pending += reversed(missing)
            else:
                done.setdefault(pending.pop())
    return list(done)
