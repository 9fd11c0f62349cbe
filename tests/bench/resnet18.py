# SPDX-License-Identifier: Apache-2.0
"""The model ResNet-18, in plain PyTorch: 62 parameters, 46.8 MB of gradients.

Source: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", 2015,
table 1.
"""

from torch import nn


class Block(nn.Module):
    """Two convolutions and a shortcut around them."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False),
                nn.BatchNorm2d(after),
            )

    def forward(self, x):
        return nn.functional.relu(self.way(x) + self.shortcut(x))


def resnet18():
    """Makes the model, for images of any size and 1000 classes."""
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    before = 64
    for after, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, after, stride), Block(after, after, 1)]
        before = after
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return nn.Sequential(*layers)
