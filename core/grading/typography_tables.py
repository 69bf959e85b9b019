"""The commands of LaTeX that `core.grading.typography` drops, unwraps or gives one name."""

from __future__ import annotations

from core.grading.names import names


def _commands(names: str) -> frozenset[str]:
    return frozenset("\\" + name for name in names.split())


# Their argument is words.
TEXTS = _commands(
    "text textnormal textrm textsf texttt textbf textit textsl textsc textup textmd emph mbox hbox mathrm mathsf "
    "mathtt operatorname unit si textsuperscript"
)
# Their argument is mathematics in another font.
ALPHABETS = _commands("mathbf mathit mathcal mathfrak mathscr mathnormal boldsymbol bm bold pmb symbf mathds")
UNWRAPPED = _commands(
    "boxed fbox framebox underline uline underbar ensuremath smash mathop mathord mathrel mathbin num mathstrut "
    "displaymath makebox Boxed"
)
BLACKBOARD = frozenset("RNZQC")
DROPPED = _commands(
    "displaystyle textstyle scriptstyle scriptscriptstyle large Large LARGE huge Huge small footnotesize scriptsize "
    "normalsize tiny bf it rm sf tt sl sc em bfseries itshape rmfamily sffamily ttfamily scshape mdseries upshape "
    "normalfont limits nolimits displaylimits left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr "
    "Biggl Biggr bigm Bigm nonumber notag centering hfill hfil vfill noindent strut mathstrut protect blacksquare qed "
    "qedhere allowbreak nobreak ! / relax null unitlength boldmath checkmark par"
) | {"\\"}
# How many arguments are dropped, and whether one follows that is kept without its braces.
DROPPED_WITH_ARGUMENTS = {
    **dict.fromkeys(_commands("label tag hspace vspace phantom hphantom vphantom ref mspace"), (1, False)),
    r"\rule": (2, False),
    r"\color": (1, False),
    **dict.fromkeys(_commands("textcolor colorbox"), (1, True)),
    r"\fcolorbox": (2, True),
}
RENAMED = {
    **dict.fromkeys(_commands("dfrac tfrac cfrac sfrac nicefrac xfrac"), r"\frac"),
    **dict.fromkeys(_commands("dbinom tbinom"), r"\binom"),
    **dict.fromkeys(_commands("leq leqslant leqq eqslantless"), r"\le"),
    **dict.fromkeys(_commands("geq geqslant geqq eqslantgtr"), r"\ge"),
    **dict.fromkeys(_commands("neq not="), r"\ne"),
    **dict.fromkeys(_commands("lt"), "<"),
    **dict.fromkeys(_commands("gt"), ">"),
    **dict.fromkeys(_commands("times ast bullet centerdot"), r"\cdot"),
    r"\div": "/",
    **dict.fromkeys(_commands("lbrace"), r"\{"),
    **dict.fromkeys(_commands("rbrace"), r"\}"),
    **dict.fromkeys(_commands("lbrack"), "["),
    **dict.fromkeys(_commands("rbrack"), "]"),
    **dict.fromkeys(_commands("lparen"), "("),
    **dict.fromkeys(_commands("rparen"), ")"),
    **dict.fromkeys(_commands("vert lvert rvert"), "|"),
    **dict.fromkeys(_commands("langle"), "("),
    **dict.fromkeys(_commands("rangle"), ")"),
    **dict.fromkeys(_commands("varnothing O"), r"\emptyset"),
    **dict.fromkeys(_commands("degree textdegree"), r"^{\circ}"),
    **dict.fromkeys(_commands("colon ratio"), ":"),
    **dict.fromkeys(_commands("land wedge & And"), r" \text{and} "),
    **dict.fromkeys(_commands("lor vee"), r" \text{or} "),
    **dict.fromkeys(_commands("dots ldots cdots dotsc dotsb dotsm dotsi textellipsis"), "..."),
    **dict.fromkeys(_commands("prime"), "'"),
    **dict.fromkeys(_commands("quad qquad enspace thickspace space"), " "),
    **dict.fromkeys([*_commands(", ; : > thinspace medspace nobreakspace"), "\\ "], "\u00a0"),
    "\\\n": " ",
    r"\%": "%",
    r"\percent": "%",
    r"\_": "_",
    r"\#": "#",
    r"\-": "",
    **dict.fromkeys(_commands("newline cr"), r"\\"),
    r"\Bbb": r"\mathbb",
    r"\backslash": r"\setminus",
    r"\Longrightarrow": r"\Rightarrow",
    **dict.fromkeys(_commands("coloneqq coloneq"), "="),
    r"\tg": r"\tan",
    r"\ctg": r"\cot",
    r"\bar": r"\overline",
    r"\widehat": r"\hat",
    r"\widetilde": r"\tilde",
    r"\lg": r"\log_{10}",
    r"\infin": r"\infty",
    r"\rightarrow": r"\to",
    r"\implies": r"\Rightarrow",
    **dict.fromkeys(_commands("intercal top"), "T"),
    **{rf"\{letter}": rf"\mathbb{{{letter}}}" for letter in ("R", "N", "Z", "Q")},
    r"\reals": r"\mathbb{R}",
    **dict.fromkeys(_commands("pounds textsterling"), r"\pounds"),
    **dict.fromkeys(_commands("euro texteuro"), r"\euro"),
    **dict.fromkeys(_commands("yen textyen"), "¥"),
    **dict.fromkeys(_commands("cent textcent"), r"\text{cents}"),
    r"\textdollar": r"\$",
    r"\upmu": r"\mu",
    r"\ohm": r"\Omega",
}
ENVIRONMENTS = {
    **dict.fromkeys(("bmatrix", "psmallmatrix", "bsmallmatrix"), "pmatrix"),
    **dict.fromkeys(("smallmatrix", "array", "tabular"), "matrix"),
    **dict.fromkeys(names("equation math displaymath center gather gathered"), ""),
    **dict.fromkeys(names("align aligned alignat split eqnarray multline"), "&"),  # which `&` lines up
}
FUNCTIONS = frozenset(
    names("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp gcd lcm max min det lim")
)
