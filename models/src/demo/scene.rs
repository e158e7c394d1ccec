//! What is in a picture, and how it is said.

use std::fmt;

use super::random::Random;

/// A colour of the demo's shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Colour {
    /// Red.
    Red,
    /// Green.
    Green,
    /// Blue.
    Blue,
    /// Yellow.
    Yellow,
    /// Purple.
    Purple,
    /// Orange.
    Orange,
}

impl Colour {
    /// All colours.
    pub const ALL: [Self; 6] = [
        Self::Red,
        Self::Green,
        Self::Blue,
        Self::Yellow,
        Self::Purple,
        Self::Orange,
    ];

    /// Red, green and blue, 0 to 255, before any jitter.
    pub(super) fn rgb(self) -> [f32; 3] {
        match self {
            Self::Red => [215.0, 30.0, 35.0],
            Self::Green => [35.0, 160.0, 60.0],
            Self::Blue => [35.0, 80.0, 215.0],
            Self::Yellow => [245.0, 215.0, 40.0],
            Self::Purple => [145.0, 50.0, 170.0],
            Self::Orange => [245.0, 130.0, 25.0],
        }
    }

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Red => "red",
            Self::Green => "green",
            Self::Blue => "blue",
            Self::Yellow => "yellow",
            Self::Purple => "purple",
            Self::Orange => "orange",
        }
    }

    /// The indefinite article before the word.
    fn article(self) -> &'static str {
        match self {
            Self::Orange => "an",
            _ => "a",
        }
    }
}

/// A shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A circle.
    Circle,
    /// A square.
    Square,
    /// An equilateral triangle, one corner up.
    Triangle,
    /// A star with five points.
    Star,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 4] = [Self::Circle, Self::Square, Self::Triangle, Self::Star];

    /// The words for one and for several.
    pub fn words(self) -> [&'static str; 2] {
        match self {
            Self::Circle => ["circle", "circles"],
            Self::Square => ["square", "squares"],
            Self::Triangle => ["triangle", "triangles"],
            Self::Star => ["star", "stars"],
        }
    }
}

/// One to three objects of the same shape and colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// How many, 1 to 3.
    pub count: usize,
    /// Their colour.
    pub colour: Colour,
    /// Their shape.
    pub shape: Shape,
}

impl fmt::Display for Group {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = match self.count {
            1 => self.colour.article(),
            2 => "two",
            _ => "three",
        };
        let shape = self.shape.words()[usize::from(self.count > 1)];
        write!(out, "{count} {} {shape}", self.colour.word())
    }
}

/// Where the first group is, seen from the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// Higher up.
    Above,
    /// Further down.
    Below,
    /// To the left.
    LeftOf,
    /// To the right.
    RightOf,
}

impl Relation {
    /// All relations.
    pub const ALL: [Self; 4] = [Self::Above, Self::Below, Self::LeftOf, Self::RightOf];

    /// The words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Above => "above",
            Self::Below => "below",
            Self::LeftOf => "left of",
            Self::RightOf => "right of",
        }
    }

    /// The same fact, told from the other group.
    fn reversed(self) -> Self {
        match self {
            Self::Above => Self::Below,
            Self::Below => Self::Above,
            Self::LeftOf => Self::RightOf,
            Self::RightOf => Self::LeftOf,
        }
    }
}

/// What a picture shows. Its [`Display`](fmt::Display) form is the caption.
///
/// A scene of two groups has one caption: the larger group comes first, and of two equal ones the upper or left one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scene {
    /// The group named first.
    pub first: Group,
    /// Where it is seen from another group, and that group.
    pub second: Option<(Relation, Group)>,
}

impl Scene {
    /// Any scene: two groups in three of four, which differ in colour or shape.
    pub(super) fn random(random: &mut Random) -> Self {
        let mut group = || Group {
            count: 1 + random.below(3),
            colour: Colour::ALL[random.below(Colour::ALL.len())],
            shape: Shape::ALL[random.below(Shape::ALL.len())],
        };
        let first = group();
        let second = loop {
            let second = group();
            if (second.colour, second.shape) != (first.colour, first.shape) {
                break second;
            }
        };
        if random.below(4) == 0 {
            return Self {
                first,
                second: None,
            };
        }
        Self::of_pair(first, Relation::ALL[random.below(4)], second)
    }

    /// The scene of two groups, in the order of its caption.
    fn of_pair(first: Group, relation: Relation, second: Group) -> Self {
        let leads = matches!(relation, Relation::Above | Relation::LeftOf);
        let (first, relation, second) = match first.count.cmp(&second.count) {
            std::cmp::Ordering::Greater => (first, relation, second),
            std::cmp::Ordering::Equal if leads => (first, relation, second),
            _ => (second, relation.reversed(), first),
        };
        Self {
            first,
            second: Some((relation, second)),
        }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.first)?;
        match &self.second {
            Some((relation, second)) => write!(out, " {} {second}", relation.words()),
            None => Ok(()),
        }
    }
}
