"""Our own Streamlit components (v2): curves, node wall, checkpoint strip, verdict band, numbers, checks, facts,
judgements, records.

Everything that comes from outside is set as text, never as markup; colours follow Streamlit's own theme variables.
"""

from pages._shared.components.assets import PLOTLY_URL, PLOTLY_VERSION, plotly_js_path, plotly_url
from pages._shared.components.chart import ChartEvents, live_chart
from pages._shared.components.panels import check_list, fact_list, judgement_list, kpi_row, verdict_band
from pages._shared.components.records import Column, Record, record_table
from pages._shared.components.strip import checkpoint_strip
from pages._shared.components.wall import node_wall

__all__ = [
    "PLOTLY_URL",
    "PLOTLY_VERSION",
    "ChartEvents",
    "Column",
    "Record",
    "check_list",
    "checkpoint_strip",
    "fact_list",
    "judgement_list",
    "kpi_row",
    "live_chart",
    "node_wall",
    "plotly_js_path",
    "plotly_url",
    "record_table",
    "verdict_band",
]
