"""The parts of `Engine.statistics()` and of what an observer gets, for annotations."""

from .engine.observe.statistics import OriginStatistics as OriginStatistics
from .engine.observe.statistics import ProviderStatistics as ProviderStatistics
from .engine.traffic.budgets.amounts import BudgetStatistics as BudgetStatistics
from .engine.traffic.limits.rate_limit import BucketStatistics as BucketStatistics
from .engine.traffic.limits.rate_limit import LimiterStatistics as LimiterStatistics
from .engine.traffic.options import CacheStatistics as CacheStatistics
from .engine.traffic.options import TrafficStatistics as TrafficStatistics
from .engine.traffic.routing.options import RouteStatistics as RouteStatistics
from .engine.traffic.routing.options import TargetStatistics as TargetStatistics
