"""The data sets that can be prepared, and their official files.

If tensorflow-datasets (TFDS) has a builder of the same name, the data take its
version, features and keys, so that TFDS and `prepare` write the same data. This
module describes the data sets without a builder.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import quote

from splitjax.data.official import cifar, image_archives
from splitjax.data.official.ag_news import ag_news
from splitjax.data.official.formats import Parsed, Paths, emnist, idx, svhn
from splitjax.data.official.uci_har import INNER, uci_har


class File(NamedTuple):
  """An official file.

  Attributes:
    checksum: md5 or sha256, in hexadecimal.
    size: bytes; None: not known.
    urls: addresses, tried in turn.
  """

  checksum: str
  size: int | None
  urls: tuple[str, ...]

  @property
  def algorithm(self) -> str:
    """Hash algorithm of the checksum, as hashlib names it."""
    return "md5" if len(self.checksum) == 32 else "sha256"


class Form(NamedTuple):
  """A form in which a data set is officially distributed.

  Attributes:
    files: official name -> the file.
    parse: (official name -> path of that file) -> Parsed.
    members: file in the archive -> md5. An archive with these files is accepted
      however it is packed. {}: not known.
  """

  files: dict[str, File]
  parse: Callable[[Paths], Parsed]
  members: Mapping[str, str] = {}


class About(NamedTuple):
  """Description of a data set for which TFDS has no builder.

  FACTS describes the inputs and names the label fields of the data set.

  Attributes:
    description: a few sentences.
    homepage: address.
    citation: BibTeX.
  """

  description: str
  homepage: str
  citation: str


class Store(NamedTuple):
  """The official files of a data set and its description.

  Attributes:
    forms: official forms; the first one is downloaded.
    about: the description; None if TFDS has a builder of the same name.
    remark: what is left out of the official files; "" if nothing is.
  """

  forms: tuple[Form, ...]
  about: About | None = None
  remark: str = ""


def _files(
  *rows: tuple[str, str, int], places: tuple[str, ...]
) -> dict[str, File]:
  """Makes a File of each row (name, md5, size), with an address per place."""
  return {
    name: File(md5, size, tuple(f"{place}/{name}" for place in places))
    for name, md5, size in rows
  }


def _cifar(form: str, md5: str, size: int) -> Form:
  """Makes the Form of a CIFAR archive, with its current and former address."""
  places = (
    "https://cave.cs.toronto.edu/kriz",
    "https://www.cs.toronto.edu/~kriz",
  )
  row = f"cifar-{form}.tar.gz", md5, size
  members = _CIFAR_MEMBERS.get(form, {})
  return Form(_files(row, places=places), cifar.cifar, members)


_CIFAR_MEMBERS = {
  "10-python": {
    "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
    "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
    "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
  },
  "100-python": {
    "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
    "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
  },
  "100-binary": {
    "cifar-100-binary/train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
    "cifar-100-binary/test.bin": "4499cfba6c016c1be1438163640a0898",
  },
}
"""Form of CIFAR -> md5 of each file with samples. Forms whose md5 are not known
are left out. For the Python archives, torchvision checks the same md5."""


_TINY_IMAGENET = About(
  "200 classes of ImageNet at 64x64 pixels, 500 training images of each. The "
  "test split is the official val, 50 images of each; the official test images "
  "have no labels and are not kept. Labels are the lines of the official "
  "wnids.txt. JPEG files as distributed, but grey ones as RGB in PNG.",
  "http://cs231n.stanford.edu/",
  "@misc{le2015tiny, author = {Ya Le and Xuan Yang}, title = {Tiny ImageNet "
  "Visual Recognition Challenge}, howpublished = {CS 231N, Stanford "
  "University}, year = {2015}}",
)

_CINIC10 = About(
  "The ten classes of CIFAR-10, drawn from CIFAR-10 and, downsampled, from "
  "ImageNet: 9,000 images of each in train and in test. The third official "
  "split, valid, is not kept. PNG files as distributed.",
  "https://datashare.ed.ac.uk/handle/10283/3192",
  "@misc{darlow2018cinic10, author = {Luke N. Darlow and Elliot J. Crowley and "
  "Antreas Antoniou and Amos J. Storkey}, title = {CINIC-10 is not ImageNet or "
  "CIFAR-10}, eprint = {1810.03505}, archivePrefix = {arXiv}, year = {2018}}",
)

_FASHION_MNIST = _files(
  (
    "train-images-idx3-ubyte.gz",
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    26_421_880,
  ),
  ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
  ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
  ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
  places=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
)
_MNIST = _files(
  ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
  ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
  ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
  ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
  places=(
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
  ),
)
_EMNIST = About(
  "Digits and upper and lower case letters of NIST's Special Database 19, 62 "
  "classes, and who wrote each: EMNIST ByClass, from its MATLAB file, the one "
  "that has the writers. Upright as they were written.",
  "https://www.nist.gov/itl/products-and-services/emnist-dataset",
  "@misc{cohen2017emnist, author = {Gregory Cohen and Saeed Afshar and "
  "Jonathan Tapson and Andre van Schaik}, title = {EMNIST: an extension of "
  "MNIST to handwritten letters}, eprint = {1702.05373}, archivePrefix = "
  "{arXiv}, year = {2017}}",
)
_EMNIST_FILE = File(
  "e1fa805cdeae699a52da0b77c2db17f6feb77eed125f9b45c022e7990444df95",
  None,
  (
    "https://biometrics.nist.gov/cs_links/EMNIST/matlab.zip",
    "http://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/matlab.zip",
  ),
)
_SVHN = _files(
  ("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
  ("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", 64_275_384),
  places=("http://ufldl.stanford.edu/housenumbers",),
)
_CINIC10_FILE = File(
  "6ee4d0c996905fe93221de577967a372",
  687_544_992,
  (
    "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
    # The address to which the one above redirects.
    "https://datashare.ed.ac.uk/server/api/core/bitstreams/"
    "e8e186cc-2688-48f1-aa5a-3fda1a43f8b6/content",
  ),
)
_TINY_IMAGENET_FILES = _files(
  ("tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043),
  places=("http://cs231n.stanford.edu",),
)

_UCI_HAR = About(
  "Windows of 128 steps (2.56 s) of nine signals of a smartphone at the waist "
  "of 30 people: the official folder Inertial Signals.",
  "https://archive.ics.uci.edu/dataset/240",
  "@inproceedings{anguita2013har, author = {D. Anguita and others}, title = {A "
  "Public Domain Dataset for Human Activity Recognition Using Smartphones}, "
  "booktitle = {ESANN}, year = {2013}}",
)
_UCI_HAR_FILES = (
  (
    "human+activity+recognition+using+smartphones.zip",
    "c00b803081a5c797cd5e4b83700a9810b38d53d9d84e01917e090e1fdbc81031",
    "https://archive.ics.uci.edu/static/public/240",
  ),
  (
    INNER,
    "2045e435c955214b38145fb5fa00776c72814f01b203fec405152dac7d5bfeb0",
    "https://archive.ics.uci.edu/ml/machine-learning-databases/00240",
  ),
)
_AG_NEWS = About(
  "News in four classes: title and first sentences as token ids, the hash of "
  "each word modulo the vocabulary, cut and padded with zeros to 64.",
  "http://groups.di.unipi.it/~gulli/AG_corpus_of_news_articles.html",
  "@inproceedings{zhang2015character, author = {Xiang Zhang and Junbo Zhao and "
  "Yann LeCun}, title = {Character-level Convolutional Networks for Text "
  "Classification}, booktitle = {NeurIPS}, year = {2015}}",
)
_AG_NEWS_PLACE = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras"
_AG_NEWS_FILES = {
  name: File(md5, None, (f"{_AG_NEWS_PLACE}/master/data/ag_news_csv/{name}",))
  for name, md5 in (
    ("train.csv", "b1a00f826fdfbd249f79597b59e1dc12"),
    ("test.csv", "d52ea96a97a2d943681189a97654912d"),
  )
}

_CIFAR10 = (
  _cifar("10-binary", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171),
  _cifar("10-python", "c58f30108f718f92721af3b95e74349a", 170_498_071),
)
_CIFAR100 = (
  _cifar("100-binary", "03b5dce01913d631647c71ecec9e9cb8", 168_513_733),
  _cifar("100-python", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
)

STORES: dict[str, Store] = {
  "mnist": Store((Form(_MNIST, idx),)),
  "fashion_mnist": Store((Form(_FASHION_MNIST, idx),)),
  "cifar10": Store(_CIFAR10),
  "cifar100": Store(_CIFAR100),
  "svhn_cropped": Store(
    (Form(_SVHN, svhn),), remark="the official extra images are not kept"
  ),
  "emnist_byclass": Store(
    (Form({"matlab.zip": _EMNIST_FILE}, emnist),),
    _EMNIST,
    "of the archive's six sets ByClass alone is kept",
  ),
  "cinic10": Store(
    (Form({"CINIC-10.tar.gz": _CINIC10_FILE}, image_archives.cinic10),),
    _CINIC10,
    "the official split valid is not kept",
  ),
  "tiny_imagenet": Store(
    (Form(_TINY_IMAGENET_FILES, image_archives.tiny_imagenet),),
    _TINY_IMAGENET,
    "the test split is the official val; the official test has no labels",
  ),
  "uci_har": Store(
    tuple(
      Form({name: File(sha, None, (f"{at}/{quote(name, safe='+')}",))}, uci_har)
      for name, sha, at in _UCI_HAR_FILES
    ),
    _UCI_HAR,
    "the 561 computed features are not kept",
  ),
  "ag_news": Store((Form(_AG_NEWS_FILES, ag_news),), _AG_NEWS),
}
