import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import cosine_similarity

from contune.data import load_dataset
from contune.data.traits import moments


def test_digits_are_scikit_learns_in_their_order() -> None:
    dataset = load_dataset("digits")
    bunch = load_digits()
    assert dataset.test is not None
    assert dataset.train.labels is not None
    assert dataset.test.labels is not None
    assert (len(dataset.train), len(dataset.test)) == (898, 899)
    x_NHW = torch.cat([dataset.train.resident(8, 1), dataset.test.resident(8, 1)])[:, 0].numpy()
    assert x_NHW.dtype == np.uint8
    assert x_NHW.tolist() == [[[round(v * 255 / 16) for v in row] for row in image] for image in bunch.images]
    assert dataset.train.labels.tolist() + dataset.test.labels.tolist() == bunch.target.tolist()
    assert dataset.test.names[0] == "digits#898"
    assert dataset.class_names == tuple("0123456789")


def test_stated_moments_are_those_of_the_training_half() -> None:
    dataset = load_dataset("digits")
    assert (dataset.mean, dataset.std) == moments(dataset.train.resident(8, 1).numpy())


def test_raw_pixels_score_what_a_learned_encoder_has_to_beat() -> None:
    """kNN with k = 20, cosine, exp(sim/0.1): 95.0 %. Logistic regression on 0..1, C = 1: 93.4 %."""
    dataset = load_dataset("digits")
    assert dataset.test is not None
    assert dataset.train.labels is not None
    assert dataset.test.labels is not None
    x, x_test = (part.resident(8, 1).flatten(1).numpy() / 255 for part in (dataset.train, dataset.test))
    y, y_test = dataset.train.labels.numpy(), dataset.test.labels.numpy()

    similarity = cosine_similarity(x_test, x)
    nearest = np.argsort(-similarity, axis=1)[:, :20]
    weights = np.exp(np.take_along_axis(similarity, nearest, axis=1) / 0.1)
    votes = np.stack([(weights * (y[nearest] == c)).sum(1) for c in range(10)], axis=1)
    assert abs((votes.argmax(1) == y_test).mean() - 0.950) < 0.002

    linear = LogisticRegression(C=1.0, max_iter=1000).fit(x, y)
    assert abs(linear.score(x_test, y_test) - 0.934) < 0.004
