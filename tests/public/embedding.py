"""embedding: rows of a table by token, each added to the row of its position."""

from labtools.problem import from_reference

OPERATION = from_reference(
    "embedding:batch,length,channels,vocabulary",
    {
        "out": "f32[batch,length,channels]:out",
        "tokens": "i32[batch,length]=uniform:0,vocabulary",
        **{"wte": "f32[vocabulary,channels]", "wpe": "f32[length,channels]"},
        **{"B": "i32:batch", "T": "i32:length", "C": "i32:channels"},
    },
    lambda tokens, wte, wpe: wte[tokens] + wpe,
    sizes=[(3, 20, 70, 50), (2, 9, 300, 100), (32, 1024, 768, 32000)],
    rows="batch",
)
RUNG = OPERATION.rung(
    __file__, entry="embedding_forward", grid="cdiv(batch * length * channels, 256)", block=256
)
