//! A grid of dots for plots: two by four a cell in braille, one a cell in ASCII.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Bits of the braille block (U+2800) by column and row of a cell.
const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

/// Dots over an area, with a style a cell.
pub struct Dots {
    area: Rect,
    ascii: bool,
    cells: Vec<(u8, Style, bool)>,
}

impl Dots {
    /// An empty grid over `area`.
    pub fn new(area: Rect, ascii: bool) -> Self {
        let cells = usize::from(area.width) * usize::from(area.height);
        Self {
            area,
            ascii,
            cells: vec![(0, Style::new(), false); cells],
        }
    }

    /// Dots a cell, across and down.
    fn scale(&self) -> (usize, usize) {
        if self.ascii { (1, 1) } else { (2, 4) }
    }

    /// Number of dots across.
    pub fn width(&self) -> usize {
        usize::from(self.area.width) * self.scale().0
    }

    /// Number of dots down.
    pub fn height(&self) -> usize {
        usize::from(self.area.height) * self.scale().1
    }

    /// Sets the dot at `x` from the left and `y` from the top; outside of the area nothing happens. In a cell that has
    /// dots of both kinds the style of the `strong` ones stays.
    pub fn set(&mut self, x: usize, y: usize, style: Style, strong: bool) {
        let (sx, sy) = self.scale();
        if x >= self.width() || y >= self.height() {
            return;
        }
        let at = y / sy * usize::from(self.area.width) + x / sx;
        let bit = if self.ascii {
            1
        } else {
            BITS.get(x % 2)
                .and_then(|c| c.get(y % 4))
                .copied()
                .unwrap_or(0)
        };
        if let Some(cell) = self.cells.get_mut(at) {
            cell.0 |= bit;
            if strong || !cell.2 {
                cell.1 = style;
                cell.2 = strong;
            }
        }
    }

    /// Draws a curve: `y(x)` is the height over the lower edge at dot `x`, in dots. Steep parts are joined. Every dot, or
    /// one of `every`.
    pub fn curve(
        &mut self,
        y: impl Fn(usize) -> Option<f64>,
        every: usize,
        style: Style,
        strong: bool,
    ) {
        let rows = self.height() as f64;
        let mut last: Option<i64> = None;
        let mut drawn = 0usize;
        for x in 0..self.width() {
            let Some(up) = y(x).filter(|v| v.is_finite() && *v > -rows && *v < 2.0 * rows) else {
                last = None;
                continue;
            };
            let here = (rows - 1.0 - up).round() as i64;
            let (from, to) = match last {
                Some(l) if l < here => (l + 1, here),
                Some(l) if l > here => (here, l - 1),
                _ => (here, here),
            };
            for row in from..=to {
                if drawn.is_multiple_of(every.max(1))
                    && let Ok(row) = usize::try_from(row)
                {
                    self.set(x, row, style, strong);
                }
                drawn += 1;
            }
            last = Some(here);
        }
    }

    /// Draws the dots.
    pub fn render(&self, buf: &mut Buffer) {
        for (i, (bits, style, strong)) in self.cells.iter().enumerate() {
            if *bits == 0 {
                continue;
            }
            let width = usize::from(self.area.width).max(1);
            let at = (
                self.area.x + (i % width) as u16,
                self.area.y + (i / width) as u16,
            );
            let c = match (self.ascii, strong) {
                (true, true) => '*',
                (true, false) => '.',
                _ => char::from_u32(0x2800 + u32::from(*bits)).unwrap_or(' '),
            };
            if let Some(cell) = buf.cell_mut(at) {
                cell.set_char(c).set_style(*style);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_where_they_were_set() {
        let area = Rect::new(1, 1, 2, 1);
        let mut dots = Dots::new(area, false);
        dots.set(0, 0, Style::new(), false);
        dots.set(3, 3, Style::new(), true);
        dots.set(99, 99, Style::new(), true);
        let mut buf = Buffer::empty(Rect::new(0, 0, 3, 3));
        dots.render(&mut buf);
        assert_eq!(buf.cell((1, 1)).map(|c| c.symbol()), Some("\u{2801}"));
        assert_eq!(buf.cell((2, 1)).map(|c| c.symbol()), Some("\u{2880}"));
    }

    #[test]
    fn a_steep_curve_has_no_holes() {
        let mut dots = Dots::new(Rect::new(0, 0, 3, 5), true);
        dots.curve(|x| Some(2.0 * x as f64), 1, Style::new(), true);
        let rows: std::collections::BTreeSet<_> = dots
            .cells
            .iter()
            .enumerate()
            .filter(|(_, c)| c.0 > 0)
            .map(|(i, _)| i / 3)
            .collect();
        assert_eq!(rows.len(), 5);
        dots.curve(|_| Some(f64::NAN), 1, Style::new(), true);
        dots.curve(|_| Some(1e300), 1, Style::new(), true);
    }
}
