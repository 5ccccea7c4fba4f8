// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the pictures of docs/ are made of.

/// A picture, in pixels from its upper left corner.
pub(crate) struct Svg(String);

/// The beginning of a picture of this size.
pub(crate) fn begin(width: u32, height: u32) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" \
         text-anchor=\"middle\">\n\
         <!-- SPDX-License-Identifier: MIT OR Apache-2.0. Written by `cargo xtask docs`. -->\n\
         <defs><marker id=\"head\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" \
         orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\"/></marker></defs>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    )
}

impl Svg {
    pub(crate) fn new(width: u32, height: u32) -> Self {
        Self(begin(width, height))
    }

    /// A box; `stroke` is how wide its edge is.
    pub(crate) fn rect(&mut self, at: [u32; 2], size: [u32; 2], fill: &str, stroke: u32) {
        let ([x, y], [width, height]) = (at, size);
        self.0.push_str(&format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" \
             stroke=\"black\" stroke-width=\"{stroke}\"/>\n"
        ));
    }

    /// A line of text whose middle is above this point.
    pub(crate) fn text(&mut self, at: [u32; 2], text: &str) {
        self.aligned(at, "middle", text);
    }

    /// A line of text that begins at this point.
    pub(crate) fn note(&mut self, at: [u32; 2], text: &str) {
        self.aligned(at, "start", text);
    }

    fn aligned(&mut self, [x, y]: [u32; 2], anchor: &str, text: &str) {
        self.0.push_str(&format!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>\n"
        ));
    }

    /// A line through these points, with a head at its end.
    pub(crate) fn path(&mut self, points: &[[u32; 2]]) {
        let points: Vec<_> = points.iter().map(|[x, y]| format!("{x},{y}")).collect();
        self.0.push_str(&format!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"#2458a6\" marker-end=\"url(#head)\"/>\n",
            points.join(" L")
        ));
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}
