"""One decode step of a whole model: its weights are read once, each layer runs attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labtools.problem import Workload
from labtools.record import published_figures

from ...figures import SHADES, Axes, draw_picture, line_look
from ...tables import Shown


@dataclass(frozen=True)
class Decoder:
    """The shape of a decoder-only model whose weights are kept in fp16."""

    layers: int
    dim: int  # of a token's state
    ffn_dim: int  # of the hidden layer of its feed-forward part
    vocab: int
    num_qo_heads: int
    num_kv_heads: int

    @classmethod
    def llama3(cls) -> Decoder:
        """The 8B model of the Llama 3 paper, by its table of shapes."""
        shape = published_figures()["llama3"]
        return cls(**{name: shape[name] for name in cls.__dataclass_fields__})

    @property
    def weights(self) -> int:
        """Numbers that a step reads: the matrices of all layers and the output matrix. Of the
        table of embeddings it reads a row a token, which is nothing beside them."""
        kv_dim = self.dim // self.num_qo_heads * self.num_kv_heads
        attention = 2 * self.dim * self.dim + 2 * self.dim * kv_dim  # q, out; k, v
        return self.layers * (attention + 3 * self.dim * self.ffn_dim) + self.dim * self.vocab

    @property
    def weight_bytes(self) -> int:
        """The same in bytes."""
        return 2 * self.weights

    def kv_bytes(self, workload: Workload) -> int:
        """K and V of all layers."""
        return self.layers * workload.kv_bytes


@dataclass(frozen=True)
class DecodeStep:
    """The time of one step, microseconds."""

    weights_us: float
    attention_us: float  # of all layers
    batch: int  # tokens that it gives, one a sequence

    @classmethod
    def of(cls, model: Decoder, gb_per_s: float, layer_us: float, batch: int) -> DecodeStep:
        """Of a model, the memory's rate (10^9 bytes per second), attention of a layer, a batch."""
        return cls(model.weight_bytes / gb_per_s / 1e3, model.layers * float(layer_us), batch)

    @property
    def time_us(self) -> float:
        """One after the other."""
        return self.weights_us + self.attention_us

    @property
    def share(self) -> float:
        """Attention's part of the time."""
        return self.attention_us / self.time_us

    @property
    def tokens_per_s(self) -> float:
        """Of all sequences of the batch together."""
        return self.batch / self.time_us * 1e6


def plot_steps(steps: Mapping[str, DecodeStep], caption: str) -> Shown:
    """One step a bar: the weights' time and attention's, with tokens per second at its end."""

    def paint(axes: Axes) -> None:
        names, found = list(steps), list(steps.values())
        weights = [one.weights_us / 1e3 for one in found]
        axes.barh(names, weights, color=SHADES[2], label="weights")
        attention = [one.attention_us / 1e3 for one in found]
        axes.barh(names, attention, left=weights, color=SHADES[1], label="attention, all layers")
        for row, one in enumerate(found):
            text = f" {one.tokens_per_s:,.0f} tokens/s"
            axes.text(one.time_us / 1e3, row, text, va="center", fontsize=9)
        axes.invert_yaxis()
        axes.set(xlabel="time of one step (ms)")
        axes.set_xlim(0, 1.35 * max(one.time_us for one in found) / 1e3)
        axes.grid(axis="y", visible=False)
        axes.legend(fontsize=9, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)

    told = "; ".join(
        f"{name}: weights {one.weights_us / 1e3:.2f} ms, "
        f"attention {one.attention_us / 1e3:.2f} ms, {one.tokens_per_s:,.0f} tokens a second"
        for name, one in steps.items()
    )
    return draw_picture(paint, f"Stacked bars. {told}.", caption, "computed", size=(4.9, 2.6))


def plot_tokens(
    modelled: Mapping[str, Mapping[int, DecodeStep]],
    measured: Mapping[str, Mapping[int, DecodeStep]],
    limit: float,
    caption: str,
) -> Shown:
    """Tokens per second by context length: lines where attention's time is a forecast, marks where
    it was recorded, and the ``limit`` of a step without attention."""

    def paint(axes: Axes) -> None:
        for number, name in enumerate(dict.fromkeys((*modelled, *measured))):
            look = line_look(number)
            line = modelled.get(name, {})
            if line:
                lengths = sorted(line)
                rates = [line[one].tokens_per_s for one in lengths]
                plain = {"color": look["color"], "linestyle": look["linestyle"]}
                axes.plot(lengths, rates, **plain)
            marks = measured.get(name, {})
            lengths = sorted(marks)
            rates = [marks[one].tokens_per_s for one in lengths]
            plain = {"color": look["color"], "marker": look["marker"], "linestyle": "none"}
            axes.plot(lengths, rates, label=name, markersize=5, **plain)
        axes.axhline(limit, color=SHADES[0], linewidth=0.8, linestyle=":")
        axes.annotate(
            "weights alone",
            (1, limit),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=8,
        )
        axes.set_xscale("log", base=2)
        ticks = sorted({at for line in modelled.values() for at in line})
        axes.set_xticks(ticks, [f"{one:,}" for one in ticks], fontsize=8)
        axes.minorticks_off()
        axes.set(
            xlabel="tokens in each sequence", ylabel="tokens per second", ylim=(0, 1.1 * limit)
        )
        axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3)

    def tell(lines: Mapping[str, Mapping[int, DecodeStep]]) -> str:
        return "; ".join(
            f"{name}: "
            + ", ".join(f"{at:,} {one.tokens_per_s:,.0f}" for at, one in sorted(line.items()))
            for name, line in lines.items()
        )

    alt = (
        "Tokens per second by the length of each sequence. Weights alone would allow "
        f"{limit:,.0f}. By forecast: {tell(modelled)}. With recorded times: {tell(measured)}."
    )
    return draw_picture(paint, alt, caption, "computed", size=(4.9, 3.5))
