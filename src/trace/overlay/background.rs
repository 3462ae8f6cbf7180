//! Texts at which a fact should stay silent: sentences about anything, and its own prompt with other words in it.

use crate::tokenizer::Tokenizer;
use crate::trace::TraceError;
use crate::trace::answer;

/// Sentences about anything, none of them like another.
const SENTENCES: [&str; 24] = [
    "The river froze early that winter, and the boats stayed in the harbour.",
    "She put the kettle on and looked for two clean cups.",
    "Prices rose by three percent in the second quarter of the year.",
    "To install the package, run the following command in a terminal.",
    "My grandfather kept bees behind the old stone barn.",
    "A triangle with two equal sides has two equal angles.",
    "The jury could not agree, so the judge sent them home.",
    "He scored twice in the last ten minutes of the match.",
    "Wash the rice until the water runs clear, then drain it.",
    "In 1912 the ship left port with more than two thousand people on board.",
    "Plants turn light into sugar with the help of chlorophyll.",
    "Please reply before Friday if you want to join the meeting.",
    "The painting was sold to a museum in New York for a record sum.",
    "def add(a, b): return a + b",
    "Why does the moon look larger when it is near the horizon?",
    "The doctor listened to his heart and wrote something down.",
    "Nobody knew who had left the window open all night.",
    "It is forbidden to park here between eight and ten in the morning.",
    "The orchestra tuned its instruments while the hall grew quiet.",
    "Copper conducts electricity better than iron does.",
    "They walked for hours through the forest without meeting anyone.",
    "The government announced new elections for the spring.",
    "A good knife should be sharp, balanced and easy to clean.",
    "Thank you for calling, how can I help you today?",
];

/// Words put into a prompt in the place of others: what is alike in all of these prompts is not what the fact is about.
const WORDS: [&str; 24] = [
    "Germany",
    "Japan",
    "Egypt",
    "Canada",
    "Brazil",
    "Italy",
    "London",
    "Moscow",
    "Mary",
    "Einstein",
    "Google",
    "water",
    "music",
    "dog",
    "gold",
    "summer",
    "seven",
    "red",
    "language",
    "currency",
    "president",
    "author",
    "opposite",
    "number",
];

/// Prompts with another word, at most.
const NEAR: usize = 96;
/// Tokens that those prompts have together, about: a long prompt has fewer of them.
const NEAR_TOKENS: usize = 4096;
/// Fewer are not made, however long the prompt is.
const NEAR_LEAST: usize = 6;
/// Prompts with another word that are kept to measure with, at most.
const MEASURED: usize = 12;
/// Sentences that the prompt is read behind, too, for its key; the one after them is kept to see what that is worth.
const FRONTS: usize = 3;
/// Letters from which on a word is taken to mean something.
const CONTENT: usize = 4;

/// The texts of one fact.
#[derive(Debug)]
pub(super) struct Texts {
    /// Their tokens, the sentences first.
    pub ids: Vec<Vec<u32>>,
    /// How many of them are sentences.
    pub sentences: usize,
    /// The prompt behind sentences, with which its key is made.
    pub behind: Vec<Vec<u32>>,
    /// The prompt behind another one.
    pub behind_new: Vec<u32>,
}

impl Texts {
    /// The texts at which the change elsewhere is measured: all sentences, and some of the prompts with one word changed,
    /// of which no key is made.
    pub fn measured(&self) -> impl Iterator<Item = usize> {
        let near = self.ids.len() - self.sentences;
        let n = (near / 2).min(MEASURED);
        let near = (0..n).map(move |i| self.sentences + i * near / n);
        (0..self.sentences).chain(near)
    }

    /// Whether keys are made of a text.
    pub fn is_for_keys(&self, text: usize) -> bool {
        text < self.sentences || !self.measured().any(|t| t == text)
    }

    /// None, where none are needed.
    pub fn none() -> Self {
        Self {
            ids: Vec::new(),
            sentences: 0,
            behind: Vec::new(),
            behind_new: Vec::new(),
        }
    }

    /// Of a prompt of `tokens` tokens.
    ///
    /// # Errors
    /// A text that this vocabulary cannot encode.
    pub fn of(tokenizer: &Tokenizer, prompt: &str, tokens: usize) -> Result<Self, TraceError> {
        let most = (NEAR_TOKENS / tokens.max(1)).clamp(NEAR_LEAST, NEAR);
        let near = swapped(prompt);
        // Evenly from all of them, so that every place of the prompt has its share.
        let n = near.len().min(most);
        let near = (0..n).filter_map(|i| near.get(i * near.len() / n.max(1)));
        let texts = SENTENCES
            .into_iter()
            .chain(near.map(String::as_str))
            .map(|text| answer::encode(tokenizer, text));
        let behind = SENTENCES.iter().take(FRONTS + 1);
        let behind = behind.map(|s| answer::encode(tokenizer, &format!("{s} {prompt}")));
        let mut behind: Vec<_> = behind.collect::<Result<_, _>>()?;
        Ok(Self {
            ids: texts.collect::<Result<_, _>>()?,
            sentences: SENTENCES.len(),
            behind_new: behind.pop().unwrap_or_default(),
            behind,
        })
    }
}

/// The prompt with one of its words exchanged, for every word that means something and stands before the last one; a prompt
/// of one or two words with another word in front of it.
fn swapped(prompt: &str) -> Vec<String> {
    let words = words(prompt);
    let Some((_, before)) = words.split_last().filter(|w| !w.1.is_empty()) else {
        return WORDS.iter().map(|w| format!("{w} {prompt}")).collect();
    };
    let content = |(i, at): &(usize, &(usize, &str))| {
        let name = *i > 0 && at.1.chars().next().is_some_and(char::is_uppercase);
        name || at.1.chars().count() >= CONTENT
    };
    let mut places: Vec<_> = before.iter().enumerate().filter(content).collect();
    if places.is_empty() {
        places = before.iter().enumerate().collect();
    }
    let mut all = Vec::new();
    for (_, (start, word)) in places {
        let (left, right) = prompt.split_at(*start);
        let right = right.strip_prefix(word).unwrap_or(right);
        let others = WORDS.iter().filter(|w| *w != word);
        all.extend(others.map(|other| format!("{left}{other}{right}")));
    }
    all
}

/// Words with the byte at which they start; what stands around them, punctuation too, belongs to none.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut at = 0;
    let mut all = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        if !word.is_empty() {
            all.push((at, word));
        }
        at += word.len();
        at += text
            .get(at..)
            .and_then(|r| r.chars().next())
            .map_or(0, char::len_utf8);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_words_that_mean_something_are_exchanged() {
        let all = swapped("The capital of France is");
        assert_eq!(all.len(), 2 * WORDS.len());
        assert_eq!(all[0], "The Germany of France is");
        assert_eq!(all[WORDS.len()], "The capital of Germany is");
        assert_eq!(swapped("Hello")[0], "Germany Hello");
        assert_eq!(swapped("")[0], "Germany ");
        assert_eq!(swapped("a b c").len(), 2 * WORDS.len());
        // None for itself: that would be the prompt.
        assert!(!swapped("The capital of Japan is").contains(&"The capital of Japan is".into()));
    }

    proptest! {
        #[test]
        fn any_prompt_has_neighbours_and_is_none_of_them(prompt in ".{0,60}") {
            let all = swapped(&prompt);
            prop_assert!(!all.is_empty());
            prop_assert!(all.iter().all(|p| *p != prompt));
        }
    }
}
