//! What a context file holds of each window, and where.

use super::F32;
use super::error::Problem;
use super::head::Head;

pub(super) const MAGIC: [u8; 4] = *b"CTXT";
/// Bytes of the header.
pub(super) const HEAD: u64 = 128;
/// Bytes of an index entry.
pub(super) const ENTRY: u64 = 24;
/// Critical layers that version 1 has room for.
const LAYERS_1: usize = 8;

/// How much of a window is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The residual: 1 vector.
    One = 1,
    /// The residual and the FFN deltas of n critical layers: 1 + n.
    Two = 2,
    /// The attention deltas too: 1 + 2n.
    Three = 3,
    /// As tier 3, with every layer from the residual's to the last: the last residual is the sum.
    Four = 4,
}

impl Tier {
    /// All four.
    pub const ALL: [Tier; 4] = [Tier::One, Tier::Two, Tier::Three, Tier::Four];

    /// Vectors of a window with so many critical layers.
    pub fn vectors(self, critical_layers: usize) -> usize {
        match self {
            Tier::One => 1,
            Tier::Two => 1 + critical_layers,
            Tier::Three | Tier::Four => 1 + 2 * critical_layers,
        }
    }
}

/// How vectors are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As they are.
    F32 = 0,
    /// As differences from a [`Template`](super::Template), int8 with a scale a vector.
    TemplateInt8 = 1,
}

/// What a context file holds of each window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextShape {
    /// Numbers of a vector.
    pub hidden_size: u32,
    /// Layers of the model.
    pub n_layers: u32,
    /// Tokens of a full window.
    pub window_size: u32,
    /// How much of a window is kept.
    pub tier: Tier,
    /// After which layer the residual is taken, 0 being the embedding. Version 1 does not say; it is taken there for the
    /// layer before the first critical one, and without one for the last.
    pub residual_layer: u32,
    /// The layers whose deltas are kept, 1 to `n_layers`, ascending; none in tier 1.
    pub critical_layers: Vec<u32>,
}

impl ContextShape {
    /// Tier 4 from the residual after `bottleneck`: the last residual can be rebuilt bit by bit.
    pub fn exact(hidden_size: u32, n_layers: u32, window_size: u32, bottleneck: u32) -> Self {
        Self {
            hidden_size,
            n_layers,
            window_size,
            tier: Tier::Four,
            residual_layer: bottleneck,
            critical_layers: (bottleneck.saturating_add(1)..=n_layers).collect(),
        }
    }

    /// Vectors of a window: the residual, then the FFN deltas of all critical layers, then their attention deltas.
    pub fn vectors(&self) -> usize {
        self.tier.vectors(self.critical_layers.len())
    }

    /// The layer whose residual is the sum of what is stored; `None` where layers between are missing.
    pub fn rebuilds(&self) -> Option<u32> {
        let mut layer = self.residual_layer;
        for &critical in &self.critical_layers {
            if layer.checked_add(1) != Some(critical) {
                return None;
            }
            layer = critical;
        }
        (self.tier >= Tier::Three).then_some(layer)
    }

    /// Whether version 2 can hold it.
    pub fn check(&self) -> Result<(), Problem> {
        for (field, value) in [
            ("hidden_size", self.hidden_size),
            ("n_layers", self.n_layers),
            ("window_size", self.window_size),
        ] {
            if value == 0 {
                return Err(Problem::Shape {
                    field,
                    value: 0,
                    must: "1 or more",
                });
            }
        }
        if self.residual_layer > self.n_layers {
            return Err(Problem::Shape {
                field: "residual_layer",
                value: self.residual_layer.into(),
                must: "n_layers at most",
            });
        }
        let remedy = "name each layer once, ascending, from 1 to n_layers";
        let wrong = |what: String, remedy| Err(Problem::CriticalLayers { what, remedy });
        let mut before = 0;
        for &layer in &self.critical_layers {
            if layer == 0 {
                return wrong("0 is the embedding".into(), remedy);
            }
            if layer > self.n_layers {
                return wrong(format!("{layer} of {} layers", self.n_layers), remedy);
            }
            if layer <= before {
                return wrong(format!("{layer} after {before}"), remedy);
            }
            before = layer;
        }
        match (self.tier, self.critical_layers.len()) {
            (Tier::One, 0) => Ok(()),
            (Tier::One, n) => wrong(format!("tier 1 with {n} of them"), "tier 1 has none"),
            (tier, 0) => wrong(
                format!("tier {} without any", tier as u8),
                "name one at least, or take tier 1",
            ),
            (Tier::Four, _) if self.rebuilds() != Some(self.n_layers) => wrong(
                format!(
                    "tier 4 without every layer from {} on",
                    self.residual_layer + 1
                ),
                "name them all, or take tier 3",
            ),
            _ => Ok(()),
        }
    }

    /// The fields of version 1; its tiers are 1 to 3.
    pub(super) fn read_1(head: &Head<128>) -> Result<Self, Problem> {
        let [tier, n] = head.get(20);
        let n = usize::from(n);
        if n > LAYERS_1 {
            return Err(Problem::Field {
                field: "n_critical",
                value: n as u64,
                must: "8 at most",
            });
        }
        let layers = head.get::<LAYERS_1>(24);
        let critical_layers: Vec<_> = layers.iter().take(n).map(|&l| u32::from(l)).collect();
        let n_layers = head.positive(12, "n_layers")?;
        if let Some(layer) = critical_layers.iter().find(|&&l| l > n_layers) {
            return Err(Problem::Field {
                field: "list of critical layers",
                value: (*layer).into(),
                must: "n_layers at most",
            });
        }
        let first = critical_layers.first();
        Ok(Self {
            hidden_size: head.positive(8, "hidden_size")?,
            n_layers,
            window_size: head.u32(16),
            tier: tier_of(tier, Tier::Three, "1, 2 or 3")?,
            residual_layer: first.map_or(n_layers, |l| l.saturating_sub(1)),
            critical_layers,
        })
    }

    /// The fields of version 2, with the list of layers that stands after its header.
    pub(super) fn read_2(head: &Head<128>, list: &[u8]) -> Result<Self, Problem> {
        let words = list.chunks_exact(4).filter_map(|b| b.first_chunk());
        let layers = words.take(head.u32(48) as usize);
        let shape = Self {
            hidden_size: head.u32(8),
            n_layers: head.u32(12),
            window_size: head.u32(16),
            tier: tier_of(head.get::<1>(20)[0], Tier::Four, "1 to 4")?,
            residual_layer: head.u32(52),
            critical_layers: layers.map(|b| u32::from_le_bytes(*b)).collect(),
        };
        shape.check()?;
        Ok(shape)
    }

    /// The list of critical layers as version 2 has it after its header: padded to 8 bytes.
    pub(super) fn list(&self) -> Vec<u8> {
        let layers = self.critical_layers.iter();
        let mut bytes: Vec<u8> = layers.flat_map(|l| l.to_le_bytes()).collect();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }
}

fn tier_of(byte: u8, largest: Tier, must: &'static str) -> Result<Tier, Problem> {
    let tier = Tier::ALL.into_iter().find(|&t| t as u8 == byte);
    tier.filter(|&t| t <= largest).ok_or(Problem::Field {
        field: "tier",
        value: byte.into(),
        must,
    })
}

/// Where the parts of a file are, in bytes. All sums are checked to lie within what a file can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub index: u64,
    /// The template's place and bytes; none of them without one.
    pub template: u64,
    pub template_bytes: u64,
    pub data: u64,
    /// Bytes of a window's data, and of one vector of it.
    pub window_bytes: u64,
    pub vector_bytes: u64,
}

impl Layout {
    /// The layout of a file with `list_bytes` between header and index and `max` index entries.
    pub fn new(
        shape: &ContextShape,
        encoding: Encoding,
        list_bytes: u64,
        max: u32,
    ) -> Option<Self> {
        let width = u64::from(shape.hidden_size);
        let vectors = shape.vectors() as u64;
        let vector_bytes = match encoding {
            Encoding::F32 => width * F32,
            Encoding::TemplateInt8 => F32 + width.next_multiple_of(4),
        };
        let template_bytes = match encoding {
            Encoding::F32 => 0,
            Encoding::TemplateInt8 => vectors.checked_mul(width * F32)?,
        };
        let index = HEAD + list_bytes;
        let template = index.checked_add(u64::from(max) * ENTRY)?;
        let layout = Self {
            index,
            template,
            template_bytes,
            data: template.checked_add(template_bytes)?,
            window_bytes: vectors.checked_mul(vector_bytes)?,
            vector_bytes,
        };
        layout.end(max.max(1)).map(|_| layout)
    }

    /// Where the data of so many windows end.
    pub fn end(&self, windows: u32) -> Option<u64> {
        u64::from(windows)
            .checked_mul(self.window_bytes)?
            .checked_add(self.data)
            .filter(|&end| i64::try_from(end).is_ok())
    }
}
