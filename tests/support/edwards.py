"""Points of the curve of Ed25519, in affine form and in exact integers: for keys that are close to another's."""

from __future__ import annotations

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)  # of -1
Point = tuple[int, int]


def decode(public: str) -> Point:
    """The point of a public key (RFC 8032, section 5.1.3)."""
    whole = int.from_bytes(bytes.fromhex(public), "little")
    y, odd = whole % 2**255, whole >> 255
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * ROOT % P
    if x * x % P != square:
        raise ValueError("no point of the curve")
    return (P - x if x % 2 != odd else x) % P, y


def encode(point: Point) -> str:
    """The public key of a point."""
    x, y = point
    return (y | (x % 2) << 255).to_bytes(32, "little").hex()


def add(one: Point, other: Point) -> Point:
    """The sum of two points of -x^2 + y^2 = 1 + d x^2 y^2."""
    (a, b), (c, d) = one, other
    product = D * a * b * c * d % P
    return (a * d + b * c) * pow(1 + product, -1, P) % P, (b * d + a * c) * pow(1 - product, -1, P) % P


def negative(point: Point) -> Point:
    return -point[0] % P, point[1]


def of_low_order() -> list[Point]:
    """The eight points whose eightfold is the neutral one: all multiples of one of them of order 8."""
    eighth = decode("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
    found = [(0, 1)]
    while len(found) < 8:
        found.append(add(found[-1], eighth))
    return found
