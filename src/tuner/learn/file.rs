//! A [`BrickTuner`] as a safetensors file.
//!
//! Versions: 1 had rates, kernels and bottlenecks; 2 added what is new ([`Novelty`]) and what one machine does otherwise
//! ([`Correction`]). Columns are stored by name: a model that was trained before a knob was added loads, and does not use the
//! knob's columns.

use super::arrays::{Array, Arrays, ArraysError, MOST_BYTES};
use super::brick_tuner::{About, BrickTuner, columns};
use super::correction::Correction;
use super::forest::{KernelForest, MOST_CLASSES};
use super::logistic::{BottleneckModel, CLASSES};
use super::novelty::Novelty;
use super::rates::Rates;
use super::tree::{TreeArrays, Trees, TreesError};
use crate::tuner::store::{Store, write_whole};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Version written.
pub const FORMAT: u32 = 2;
/// Name of the kind in the header.
const KIND: &str = "cbtop tuner";
/// Weights of a correction before those of columns.
const FIXED: usize = 3;
/// Columns a file may have.
const MOST_COLUMNS: usize = 1024;

/// A file that is no model, or cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    /// Its arrays are not what they should be.
    #[error(transparent)]
    Arrays(#[from] ArraysError),
    /// Its trees are not.
    #[error("{0}; train it again with cbtop tune train")]
    Trees(#[from] TreesError),
    /// A later version.
    #[error("the model has format {0}, this program reads up to {FORMAT}; use a newer cbtop")]
    Newer(u32),
    /// Something this version does not have.
    #[error(
        "the model learned from '{0}', which this version does not know; train it again with cbtop tune train"
    )]
    Column(String),
    /// A part that does not fit the rest.
    #[error("the model is damaged: {0}; train it again with cbtop tune train")]
    Damaged(&'static str),
    /// The system said no.
    #[error("{path}: {error}; check the path and its permissions")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
}

impl BrickTuner {
    /// Where the model of this machine is kept unless a file is named: beside the run store, `tuner.safetensors`. `None`
    /// without a folder for it.
    pub fn default_path() -> Option<PathBuf> {
        Some(Store::default_path()?.with_file_name("tuner.safetensors"))
    }

    /// The model of this machine if there is one, the embedded one otherwise.
    pub fn of_this_machine() -> Self {
        Self::fitted(Self::default_path().as_deref())
    }

    /// The model of a file if there is one, the embedded one otherwise, with a caveat where the file is damaged.
    pub fn fitted(path: Option<&Path>) -> Self {
        let Some(path) = path.filter(|p| p.is_file()) else {
            return Self::pretrained().clone();
        };
        Self::load(path).unwrap_or_else(|e| {
            let mut model = Self::pretrained().clone();
            model.caveats.push(format!(
                "{} is not used: {e}; cbtop calibrate writes it anew",
                path.display()
            ));
            model
        })
    }

    /// Writes the model to a file, whole or not at all.
    ///
    /// # Errors
    /// Larger than 5 MB, or a file that cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ModelFileError> {
        let bytes = self.to_bytes()?;
        let io = |error| ModelFileError::Io {
            path: path.display().to_string(),
            error,
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        write_whole(path, |out| out.write_all(&bytes)).map_err(io)
    }

    /// Reads a model from a file.
    ///
    /// # Errors
    /// A file that cannot be read, or is no model.
    pub fn load(path: &Path) -> Result<Self, ModelFileError> {
        let io = |error| ModelFileError::Io {
            path: path.display().to_string(),
            error,
        };
        let file = std::fs::File::open(path).map_err(io)?;
        let mut bytes = Vec::new();
        let most = MOST_BYTES as u64 + 1;
        file.take(most).read_to_end(&mut bytes).map_err(io)?;
        Self::from_bytes(&bytes)
    }

    /// The model as a file of the newest version.
    ///
    /// # Errors
    /// Larger than 5 MB, or with values that are not finite.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ModelFileError> {
        Ok(write(self, FORMAT).to_bytes()?)
    }

    /// A model from a file of any version.
    ///
    /// # Errors
    /// Damaged, of a later version, or learned from columns that are no more.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ModelFileError> {
        read(&Arrays::from_bytes(bytes)?)
    }
}

/// The arrays of a version.
pub(super) fn write(model: &BrickTuner, format: u32) -> Arrays {
    let mut a = Arrays::default();
    let about = &model.about;
    let mut put = |name: &str, value: Value| a.header.insert(name.into(), value);
    put("kind", KIND.into());
    put("format", format.into());
    put("columns", columns().to_vec().into());
    put("version", about.version.into());
    put("trained_at", about.trained_at.into());
    put("samples", about.samples.into());
    put("machines", about.machines.into());
    if let Some(error) = about.error.filter(|e| e.is_finite()) {
        put("error", error.into());
    }
    if !about.ratio_errors.is_empty() {
        put("ratio_errors", json!(about.ratio_errors));
    }
    put("caveats", model.caveats.clone().into());
    model.rates.write(&mut a);
    if let Some(k) = &model.kernels {
        a.header.insert("kernels".into(), k.classes.clone().into());
        put_trees(&mut a, "kernels", k.trees.arrays());
        a.put("kernels.temperature", Array::F32(vec![k.temperature]));
    }
    if let Some(b) = &model.bottleneck {
        a.put("bottleneck.classes", Array::U32(b.classes.clone()));
        a.put("bottleneck.mean", Array::F32(b.mean.clone()));
        a.put(
            "bottleneck.coefficients",
            Array::F32(b.coefficients.clone()),
        );
        a.put("bottleneck.intercepts", Array::F32(b.intercepts.clone()));
    }
    if format >= 2 {
        write_second(model, &mut a);
    }
    a
}

/// What version 2 added.
fn write_second(model: &BrickTuner, a: &mut Arrays) {
    if let Some(n) = &model.novelty {
        a.put("novelty.scale", Array::F32(n.scale.clone()));
        a.put("novelty.prototypes", Array::F32(n.prototypes.clone()));
        a.put("novelty.threshold", Array::F32(vec![n.threshold]));
    }
    if let Some(c) = &model.correction {
        a.header
            .insert("machine".into(), c.fingerprint.clone().into());
        a.header.insert("machine_runs".into(), c.runs.into());
        a.put("correction.weights", Array::F32(c.weights.clone()));
        let half = c.half_width.map_or_else(Vec::new, |h| vec![h]);
        a.put("correction.half_width", Array::F32(half));
    }
}

/// Trees as arrays of a name.
pub(super) fn put_trees(a: &mut Arrays, name: &str, t: TreeArrays) {
    a.put(format!("{name}.roots"), Array::U32(t.roots));
    a.put(format!("{name}.feature"), Array::U16(t.feature));
    a.put(format!("{name}.threshold"), Array::F32(t.threshold));
    a.put(format!("{name}.next"), Array::U32(t.next));
    a.put(format!("{name}.values"), Array::F32(t.values));
    a.put(format!("{name}.outputs"), Array::U32(vec![t.outputs]));
}

/// Columns of a file and where they are now.
pub(super) struct Places(Vec<u16>);

impl Places {
    fn of(names: &[String]) -> Result<Self, ModelFileError> {
        if names.len() > MOST_COLUMNS {
            return Err(ModelFileError::Damaged("it has too many columns"));
        }
        let mut seen = vec![false; columns().len()];
        let place = |name: &String| {
            let at = columns().iter().position(|c| c == name);
            let at = at.ok_or_else(|| ModelFileError::Column(name.clone()))?;
            if std::mem::replace(&mut seen[at], true) {
                return Err(ModelFileError::Damaged("a column is there twice"));
            }
            Ok(at as u16)
        };
        Ok(Self(names.iter().map(place).collect::<Result<_, _>>()?))
    }

    /// Number of columns in the file.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Rows of the file's columns as rows of today's; new columns are zero.
    pub(super) fn spread<T: Copy + Default>(&self, rows: &[T]) -> Vec<T> {
        let now = columns().len();
        let mut out = vec![T::default(); rows.len() / self.count().max(1) * now];
        for (to, from) in out
            .chunks_exact_mut(now)
            .zip(rows.chunks_exact(self.count().max(1)))
        {
            for (value, place) in from.iter().zip(&self.0) {
                to[usize::from(*place)] = *value;
            }
        }
        out
    }

    /// Trees of a name, on today's columns.
    pub(super) fn trees(&self, a: &Arrays, name: &str) -> Result<Trees, ModelFileError> {
        let outputs = a.u32(&format!("{name}.outputs"))?;
        let arrays = TreeArrays {
            roots: a.u32(&format!("{name}.roots"))?.to_vec(),
            feature: a.u16(&format!("{name}.feature"))?.to_vec(),
            threshold: a.f32(&format!("{name}.threshold"))?.to_vec(),
            next: a.u32(&format!("{name}.next"))?.to_vec(),
            values: a.f32(&format!("{name}.values"))?.to_vec(),
            outputs: outputs.first().copied().unwrap_or(0),
        };
        let mut arrays = Trees::from_arrays(arrays, self.count())?.arrays();
        arrays.move_columns(&self.0);
        Ok(Trees::from_arrays(arrays, columns().len())?)
    }
}

fn read(a: &Arrays) -> Result<BrickTuner, ModelFileError> {
    if a.text("kind")? != KIND {
        return Err(ModelFileError::Damaged("it is of another kind"));
    }
    let format = whole(a, "format")? as u32;
    if format > FORMAT {
        return Err(ModelFileError::Newer(format));
    }
    if format == 0 {
        return Err(ModelFileError::Damaged("it has no format"));
    }
    let places = Places::of(&a.texts("columns")?)?;
    let second = format >= 2;
    Ok(BrickTuner {
        rates: Rates::read(a, &places)?,
        kernels: read_kernels(a, &places)?,
        bottleneck: read_bottleneck(a, &places)?,
        novelty: if second {
            read_novelty(a, &places)?
        } else {
            None
        },
        correction: if second {
            read_correction(a, &places)?
        } else {
            None
        },
        about: About {
            version: whole(a, "version")? as u32,
            trained_at: whole(a, "trained_at")? as i64,
            samples: whole(a, "samples")? as usize,
            machines: whole(a, "machines")? as usize,
            error: a.number("error").ok(),
            ratio_errors: ratio_errors(a),
        },
        caveats: a.texts("caveats")?,
    })
}

/// By knob; none in files of before, and those that are no widths are left out.
fn ratio_errors(a: &Arrays) -> BTreeMap<String, f64> {
    let all = a.header.get("ratio_errors").and_then(Value::as_object);
    let width = |(knob, error): (&String, &Value)| {
        let error = error.as_f64().filter(|e| e.is_finite() && *e > 0.0)?;
        Some((knob.clone(), error))
    };
    all.into_iter().flatten().filter_map(width).collect()
}

/// A whole number of the header that any time or count may be.
fn whole(a: &Arrays, name: &str) -> Result<u64, ModelFileError> {
    let value = a.number(name)?;
    let fits = value.fract() == 0.0 && (0.0..9e15).contains(&value);
    fits.then_some(value as u64)
        .ok_or(ModelFileError::Damaged("a count is none"))
}

fn read_kernels(a: &Arrays, places: &Places) -> Result<Option<KernelForest>, ModelFileError> {
    if !a.header.contains_key("kernels") {
        return Ok(None);
    }
    let classes = a.texts("kernels")?;
    if !(2..=MOST_CLASSES).contains(&classes.len()) {
        return Err(ModelFileError::Damaged("kernels are none to choose from"));
    }
    let trees = places.trees(a, "kernels")?;
    if trees.arrays().outputs as usize != classes.len() {
        return Err(ModelFileError::Damaged("kernels and their votes differ"));
    }
    let temperature = a.f32_of("kernels.temperature", 1)?[0];
    if !(0.01..=100.0).contains(&temperature) {
        return Err(ModelFileError::Damaged("votes cannot be calibrated"));
    }
    Ok(Some(KernelForest {
        classes,
        trees,
        temperature,
    }))
}

fn read_bottleneck(a: &Arrays, places: &Places) -> Result<Option<BottleneckModel>, ModelFileError> {
    if !a.has("bottleneck.classes") {
        return Ok(None);
    }
    let classes = a.u32("bottleneck.classes")?.to_vec();
    let known = classes.iter().all(|c| (*c as usize) < CLASSES.len());
    if classes.is_empty() || !known || !classes.is_sorted_by(|a, b| a < b) {
        return Err(ModelFileError::Damaged("classes of bottlenecks are none"));
    }
    let n = places.count();
    let mean = places.spread(a.f32_of("bottleneck.mean", n)?);
    let coefficients = a.f32_of("bottleneck.coefficients", n * classes.len())?;
    Ok(Some(BottleneckModel {
        mean,
        coefficients: places.spread(coefficients),
        intercepts: a.f32_of("bottleneck.intercepts", classes.len())?.to_vec(),
        classes,
    }))
}

fn read_novelty(a: &Arrays, places: &Places) -> Result<Option<Novelty>, ModelFileError> {
    if !a.has("novelty.scale") {
        return Ok(None);
    }
    let scale = a.f32_of("novelty.scale", places.count())?;
    let prototypes = a.f32("novelty.prototypes")?;
    let whole = places.count() > 0 && prototypes.len().is_multiple_of(places.count());
    let threshold = a.f32_of("novelty.threshold", 1)?[0];
    if !whole || threshold <= 0.0 {
        return Err(ModelFileError::Damaged("what is new cannot be told"));
    }
    Ok(Some(Novelty {
        scale: places.spread(scale),
        prototypes: places.spread(prototypes),
        threshold,
    }))
}

fn read_correction(a: &Arrays, places: &Places) -> Result<Option<Correction>, ModelFileError> {
    if !a.has("correction.weights") {
        return Ok(None);
    }
    let weights = a.f32_of("correction.weights", FIXED + places.count())?;
    let (fixed, slopes) = weights.split_at(FIXED);
    let mut all = fixed.to_vec();
    all.extend(places.spread(slopes));
    let half_width = a.f32("correction.half_width")?.first().copied();
    if half_width.is_some_and(|h| !(0.0..10.0).contains(&h)) {
        return Err(ModelFileError::Damaged("an interval is none"));
    }
    Ok(Some(Correction {
        fingerprint: a.text("machine")?.to_owned(),
        runs: whole(a, "machine_runs")? as u32,
        weights: all,
        half_width,
    }))
}
