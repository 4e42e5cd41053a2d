"""max_pool: maxima of squares of 2 by 2, an output a thread."""

from labtools.problem import from_reference


def max_pool(x):
    planes, height, width = x.shape[0], x.shape[1] // 2, x.shape[2] // 2
    squares = x[:, : 2 * height, : 2 * width].reshape(planes, height, 2, width, 2)
    return squares.max(axis=(2, 4))


OPERATION = from_reference(
    "max_pool:P,H,W",
    {
        **{"x": "f32[P,H,W]", "out": "f32[P,H//2,W//2]:out"},
        **{"planes": "i32:P", "height": "i32:H", "width": "i32:W"},
    },
    max_pool,
    sizes=[(3, 13, 46), (2, 34, 65), (32, 1024, 1024)],
    rows="P",
)
RUNG = OPERATION.rung(
    __file__,
    entry="max_pool_2x2",
    grid="cdiv(P * (H // 2) * (W // 2), 256)",
    block=256,
    supports=lambda problem: "no square of 2 by 2" if min(problem.H, problem.W) < 2 else None,
)
